"""The tool `search_files`, against a real sandbox, with ripgrep where it is installed and with grep everywhere."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_sandbox import open_sandbox
from hermes_tools.files import search_script
from hermes_tools.files.search_files import SearchFilesTool
from hermes_tools.files.search_script import expand_braces, read_matches

PROGRAMS = "sh bash cat find head mkdir sort xargs ls env python3"


@pytest.fixture(params=["rg", "grep"])
async def context(request, tmp_path):
    """A sandbox whose PATH contains only one matcher."""
    for name in [*PROGRAMS.split(), request.param]:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        (tmp_path / name).symlink_to(shutil.which(name))
    async with open_sandbox("local", env={"PATH": str(tmp_path)}) as sandbox:
        yield SimpleNamespace(sandbox=sandbox, state={})


async def search(rollout, pattern, /, **arguments):
    result = await SearchFilesTool().call({"pattern": pattern, **arguments}, rollout)
    answer = json.loads(result.content)
    assert (result.error is None) == ("error" not in answer)
    return answer


async def put(context, **files):
    for name, text in files.items():
        await context.sandbox.write_file(name.replace("__", "/").replace("_DOT_", "."), text)


def lines(answer):
    return [(match["path"], match["line"], match["content"]) for match in answer["matches"]]


async def test_matches_are_sorted_by_path_and_line(context):
    await put(context, b_DOT_py="x = 1\ny = 2\nx = 3\n", a__z_DOT_py="x = 4\n", a_DOT_txt="xx = 0")
    answer = await search(context, r"^x+ = \d")
    assert lines(answer) == [("a.txt", 1, "xx = 0"), ("a/z.py", 1, "x = 4"), ("b.py", 1, "x = 1"), ("b.py", 3, "x = 3")]
    assert (answer["total_count"], answer["truncated"]) == (4, False)


async def test_results_are_paged(context):
    await put(context, f="".join(f"hit {n}\n" for n in range(120)))
    first = await search(context, "hit")
    assert len(first["matches"]) == 50
    assert (first["total_count"], first["truncated"], first["hint"]) == (120, True, "Continue with offset=50.")
    last = await search(context, "hit", offset=100, limit=50)
    assert [line for _, line, _ in lines(last)] == list(range(101, 121))
    assert last["truncated"] is False


async def test_no_match_is_no_error(context):
    await put(context, f="a\n")
    assert await search(context, "zzz") == {"matches": [], "total_count": 0, "truncated": False}
    assert (await search(context, "zzz", target="files"))["files"] == []


async def test_a_bad_regular_expression_is_a_clear_error(context):
    await put(context, f="a(\n")
    answer = await search(context, "a(")
    assert "not a valid regular expression" in answer["error"]
    assert len(answer["error"]) > len("pattern is not a valid regular expression: a(")


async def test_names_of_matching_files_and_counts(context):
    await put(context, one="a\na\n", two="b\n", three="a\n")
    assert (await search(context, "a", output_mode="files_only"))["files"] == ["one", "three"]
    counts = (await search(context, "a", output_mode="count"))["counts"]
    assert counts == [{"path": "one", "count": 2}, {"path": "three", "count": 1}]


async def test_context_lines_belong_to_their_match(context):
    await put(context, f="1\n2\nhit\n4\nhit\n6\n7\n8\n9\nhit", g="hit\n")
    found = (await search(context, "hit", context=2))["matches"]
    shown = [(match["line"], match["before"], match["after"]) for match in found]
    assert shown == [
        (3, ["1", "2"], ["4", "hit"]),
        (5, ["hit", "4"], ["6", "7"]),
        (10, ["8", "9"], []),
        (1, [], []),
    ]


# A loop instead of parametrisation, because starting a sandbox per row would take most of the time.
PATTERNS = ["it's", '"q"', "$(touch x)", "`touch x`", "; touch x", "-e", "--help", "a\\|b", "ü", " two  spaces "]


async def test_patterns_are_never_run_or_torn(context):
    for pattern in PATTERNS:
        escaped = "".join(f"\\{c}" if c in "$()\\|" else c for c in pattern)
        await put(context, f=f"before {pattern} after\n")
        assert lines(await search(context, escaped)) == [("f", 1, f"before {pattern} after")]
    assert [entry.path for entry in await context.sandbox.list_dir(".")] == ["f"]


async def test_file_names_are_taken_literally(context):
    for name in ["it's", "a b", "$(x)", "-n", "a:1:b", "new\nline", "ü", "*"]:
        await context.sandbox.write_file(f"d/{name}", "hit\nhit\n")
        assert [match["path"] for match in (await search(context, "hit"))["matches"]] == [f"d/{name}"] * 2
        assert (await search(context, "hit", path=f"d/{name}"))["total_count"] == 2
        assert (await search(context, "hit", output_mode="count"))["counts"] == [{"path": f"d/{name}", "count": 2}]
        assert (await search(context, "*", target="files"))["files"] == [f"d/{name}"]
        await context.sandbox.remove(f"d/{name}")


async def test_the_session_is_left_as_it_was(context):
    await put(context, d__f="hit\n", f="hit\n")
    await context.sandbox.exec(
        "cd d; export COLOUR=blue; set -e -o noclobber; "
        "grep() { echo shadowed; }; find() { echo shadowed; }; rg() { :; }; alias sort=false"
    )
    state = 'pwd; echo "$-"; declare -F; alias; echo "$COLOUR $TMPDIR $PATH"'
    before = (await context.sandbox.exec(state)).output
    assert (await search(context, "hit"))["total_count"] == 2
    assert (await search(context, "none"))["total_count"] == 0
    assert "error" in await search(context, "(")
    assert (await context.sandbox.exec(state)).output == before
    temporary = (await context.sandbox.exec('ls -A "$TMPDIR"')).output
    assert "hermes-search" not in temporary


async def test_version_control_and_binary_files_are_left_out_and_hidden_ones_are_not(context):
    await put(context, _DOT_git__config="hit\n", _DOT_env="hit\n", bin=b"hit\0\n", node_modules__x="hit\n")
    await put(context, _DOT_gitignore="node_modules\n")
    assert [match["path"] for match in (await search(context, "hit"))["matches"]] == [".env", "node_modules/x"]
    assert (await search(context, "hit", path=".git"))["total_count"] == 1
    assert "bin" in (await search(context, "*", target="files"))["files"]


async def test_bytes_that_are_no_text_do_not_hide_a_file(context):
    await put(context, latin=b"caf\xe9 hit\n", crlf=b"hit\r\n")
    assert lines(await search(context, "hit$|hit\\r$")) == [("crlf", 1, "hit"), ("latin", 1, "caf\ufffd hit")]


async def test_globs_choose_files(context):
    await put(
        context, a_DOT_py="hit", src__b_DOT_ts="hit", src__c_DOT_tsx="hit", src__deep__d_DOT_py="hit", e_DOT_txt="hit"
    )
    paths = [match["path"] for match in (await search(context, "hit", file_glob="*.{ts,tsx}"))["matches"]]
    assert paths == ["src/b.ts", "src/c.tsx"]
    assert (await search(context, "*.py", target="files"))["files"] == ["a.py", "src/deep/d.py"]
    assert (await search(context, "**/*.py", target="files"))["files"] == ["a.py", "src/deep/d.py"]
    assert (await search(context, "src/**/*.py", target="files"))["files"] == ["src/deep/d.py"]
    assert (await search(context, "tsx", target="files"))["files"] == ["src/c.tsx"]
    assert (await search(context, "*", target="files", path="src", file_glob="*.py"))["files"] == ["src/deep/d.py"]


async def test_a_path_that_does_not_exist_lists_similar_ones(context):
    await put(context, source__f="x")
    answer = await search(context, "x", path="sorce")
    assert answer["error"] == "Path not found: sorce"
    assert answer["similar_files"] == ["source"]


async def test_a_result_of_many_megabytes_is_bounded_and_says_so(context, monkeypatch):
    monkeypatch.setattr(search_script, "RESULT_LIMIT", 100_000)
    await put(context, f="hit and more text\n" * 50_000)
    answer = await search(context, "hit", limit=5)
    assert answer["truncated"]
    assert "lower bound" in answer["note"]
    assert 1000 < answer["total_count"] < 50_000


async def test_a_long_line_is_cut(context):
    await put(context, f="hit" + "x" * 100_000 + "\n")
    (match,) = (await search(context, "hit"))["matches"]
    assert match["content"].endswith("[line cut, 100003 characters in total]")
    assert len(match["content"]) < 600


async def test_without_any_matcher_the_answer_says_so(tmp_path):
    for name in PROGRAMS.split():
        (tmp_path / name).symlink_to(shutil.which(name))
    async with open_sandbox("local", env={"PATH": str(tmp_path)}) as sandbox:
        context = SimpleNamespace(sandbox=sandbox, state={})
        await put(context, f="x")
        assert "Neither ripgrep nor grep" in (await search(context, "x"))["error"]
        assert (await search(context, "f", target="files"))["files"] == ["f"]


def test_braces_expand_and_are_bounded():
    assert expand_braces("*.{a,b}") == ["*.a", "*.b"]
    assert expand_braces("{a,b}{c,d}") == ["ac", "ad", "bc", "bd"]
    assert len(expand_braces("{a,b}" * 40)) < 200


def test_results_of_a_grep_without_null_bytes_are_read_too():
    raw = b"a.txt-1-before\na.txt:2:hit:3:x\n--\nb:7:hit\n"
    found = read_matches(raw, 1)
    assert [(match.path, match.line, match.text, match.before) for match in found] == [
        ("a.txt", 2, "hit:3:x", ["before"]),
        ("b", 7, "hit", []),
    ]


@given(st.binary(max_size=200), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_any_bytes_can_be_read(raw, context):
    read_matches(raw, context)
    search_script.read_paths(raw)
    search_script.read_counts(raw)
