"""The tools `read_file`, `write_file` and `todo`, against a real sandbox."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_sandbox import open_sandbox
from hermes_tools.files import read_file
from hermes_tools.files.patch import PatchTool
from hermes_tools.files.read_file import ReadFileTool, looks_binary
from hermes_tools.files.search_files import SearchFilesTool
from hermes_tools.files.write_file import WriteFileTool
from hermes_tools.terminal import TerminalTool
from hermes_tools.todo import TodoTool


@pytest.fixture
async def context():
    async with open_sandbox("local") as sandbox:
        yield SimpleNamespace(sandbox=sandbox, state={})


async def ask(tool, context, **arguments):
    result = await tool.call(arguments, context)
    answer = json.loads(result.content)
    assert (result.error is None) == ("error" not in answer)
    return answer


async def read(context, path, **arguments):
    return await ask(ReadFileTool(), context, path=path, **arguments)


async def test_lines_are_numbered_and_the_window_is_exact(context):
    await context.sandbox.write_file("f", "".join(f"line {n}\n" for n in range(1, 1201)))
    answer = await read(context, "f")
    assert answer["content"].startswith("     1|line 1\n     2|line 2\n")
    assert answer["content"].endswith("   500|line 500")
    assert (answer["total_lines"], answer["truncated"]) == (1200, True)
    assert "offset=501" in answer["hint"]
    last = await read(context, "f", offset=1199, limit=2000)
    assert last["content"] == "  1199|line 1199\n  1200|line 1200"
    assert last["truncated"] is False


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0", exclude_categories=["Cc"]))),
    ended=st.booleans(),
    offset=st.integers(1, 12),
    limit=st.integers(1, 12),
)
@settings(max_examples=30, deadline=None)
async def test_every_line_comes_back_as_it_is(lines, ended, offset, limit):
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.removeprefix("\ufeff").split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    stat = SimpleNamespace(kind="file", size=len(text.encode()))

    async def data(path, offset=0, length=None):
        return text.encode()[offset : offset + length]

    async def describe(path):
        return stat

    sandbox = SimpleNamespace(read_file=data, stat=describe)
    answer = await read(SimpleNamespace(sandbox=sandbox), "f", offset=offset, limit=limit)
    window = expected[offset - 1 : offset - 1 + limit]
    assert answer["content"] == "\n".join(f"{n:6d}|{line}" for n, line in enumerate(window, offset))
    assert answer["total_lines"] == len(expected)
    assert answer["truncated"] == (len(expected) > offset - 1 + limit)


async def test_blocks_do_not_tear_lines(context, monkeypatch):
    text = "".join(f"{'é' * n}\r\n" for n in range(60))
    await context.sandbox.write_file("f", text)
    monkeypatch.setattr(read_file, "_BLOCK", 7)
    answer = await read(context, "f", offset=50, limit=3)
    assert answer["content"] == "\n".join(f"{n:6d}|{'é' * (n - 1)}" for n in range(50, 53))
    assert answer["total_lines"] == 60


async def test_reading_twice_gives_the_same_and_nothing_is_hidden(context):
    """hermes-agent's defect: a second read answered "file unchanged", and words like secrets were replaced."""
    text = "API_KEY=sk-1234567890abcdef1234567890abcdef\n"
    await context.sandbox.write_file(".env", text)
    first = await read(context, ".env")
    assert first == await read(context, ".env")
    assert text.strip() in first["content"]


async def test_a_miss_lists_similar_names(context):
    await context.sandbox.write_file("src/Main.py", "")
    answer = await read(context, "src/main.pyy")
    assert answer["error"] == "File not found: src/main.pyy"
    assert answer["similar_files"] == ["src/Main.py"]
    assert (await read(context, "no/such/dir"))["similar_files"] == []


async def test_binary_files_directories_and_devices_are_refused(context):
    await context.sandbox.write_file("f.bin", bytes(range(256)))
    assert "binary file of 256 bytes" in (await read(context, "f.bin"))["error"]
    assert "is a directory" in (await read(context, "."))["error"]
    assert "device" in (await read(context, "/dev/zero"))["error"]
    assert "NUL" in (await read(context, "a\0b"))["error"] or "a\0b" in (await read(context, "a\0b"))["error"]
    assert "f.bin" in (await read(context, "f.bin/x"))["error"]


@pytest.mark.parametrize("text", ["Grüße", "\x1b[31mred\x1b[0m", "tab\tand\fform", ""])
def test_text_is_not_taken_for_binary(text):
    assert not looks_binary(text.encode())
    assert not looks_binary(text.encode("latin-1"))


async def test_a_long_line_is_cut_with_a_notice(context):
    await context.sandbox.write_file("f", "x" * 5000 + "\nshort\n")
    first, second = (await read(context, "f"))["content"].split("\n")
    assert len(first) <= 7 + 2000
    assert first.endswith("[line cut, 5000 bytes in total]")
    assert second == "     2|short"


async def test_an_answer_that_would_be_too_long_is_refused_with_advice(context):
    await context.sandbox.write_file("f", ("y" * 999 + "\n") * 300)
    answer = await read(context, "f")
    assert "limit=" in answer["error"]
    assert answer["total_lines"] == 300
    assert "content" in await read(context, "f", limit=90)


async def test_a_file_larger_than_the_scan_says_that_lines_were_not_counted(context, monkeypatch):
    await context.sandbox.write_file("f", "a\n" * 5000)
    monkeypatch.setattr(read_file, "SCAN_LIMIT", 2000)
    monkeypatch.setattr(read_file, "_BLOCK", 1000)
    answer = await read(context, "f", limit=2)
    assert answer["content"] == "     1|a\n     2|a"
    assert (answer["total_lines"], answer["truncated"]) == (None, True)
    assert "2000 bytes" in answer["note"]


async def test_empty_files_and_offsets_past_the_end_are_plain_answers(context):
    await context.sandbox.write_file("f", "")
    assert (await read(context, "f"))["total_lines"] == 0
    await context.sandbox.write_file("f", "one\n")
    answer = await read(context, "f", offset=7)
    assert (answer["content"], answer["truncated"]) == ("", False)
    assert "ends at line 1" in answer["hint"]


async def test_a_tilde_is_the_home_of_the_sandbox(context):
    await context.sandbox.exec("mkdir -p ~ && echo mine >~/hermes-tilde-test")
    assert (await read(context, "~/hermes-tilde-test"))["content"] == "     1|mine"
    await context.sandbox.exec("rm ~/hermes-tilde-test")


async def test_terminal_and_file_tools_see_the_same_paths(context):
    """hermes-agent's defect: bash and the file tool did not see the same paths."""
    place = (await context.sandbox.exec("mkdir d && echo x >d/out.txt && cd d && pwd")).output.strip()
    assert (await read(context, f"{place}/out.txt"))["content"] == "     1|x"
    assert (await read(context, "d/out.txt"))["content"] == "     1|x"
    answer = await ask(WriteFileTool(), context, path=f"{place}/new/in.txt", content="hé\n")
    assert answer == {"path": f"{place}/new/in.txt", "bytes_written": 4}
    assert (await context.sandbox.exec(f"cat {place}/new/in.txt")).output == "hé\n"


async def test_a_large_file_is_not_damaged_by_the_cap_on_command_output(context):
    """hermes-agent's defect: the limit of 50,000 characters for command output also damaged files."""
    lines = [f"{n:05d} {'x' * 100}" for n in range(20_000)]
    await context.sandbox.write_file("big", "\n".join(lines))
    for start in (1, 9_000, 19_501):
        answer = await read(context, "big", offset=start)
        assert [line[7:] for line in answer["content"].split("\n")] == lines[start - 1 : start + 499]
    assert answer["total_lines"] == 20_000


async def test_the_same_calls_give_the_same_answers_in_another_sandbox(context):
    """hermes-agent's defect: random ids and host paths in results changed each rollout's prompt."""
    steps: list[tuple[Any, dict[str, Any]]] = [
        (WriteFileTool(), {"path": "src/a.py", "content": "x = 1\n"}),
        (PatchTool(), {"path": "src/a.py", "old_string": "1", "new_string": "2"}),
        (ReadFileTool(), {"path": "src/a.py"}),
        (ReadFileTool(), {"path": "src/b.py"}),
        (SearchFilesTool(), {"pattern": "x"}),
        (SearchFilesTool(), {"pattern": "x("}),
        (SearchFilesTool(), {"pattern": "x", "path": "nowhere"}),
        (TerminalTool(), {"command": "cat src/a.py; false"}),
        (TodoTool(), {"todos": [{"id": "1", "content": "x"}]}),
    ]
    async with open_sandbox("local") as sandbox:
        other = SimpleNamespace(sandbox=sandbox, state={})
        for tool, arguments in steps:
            assert await tool.call(arguments, context) == await tool.call(arguments, other)


async def test_writing_keeps_every_character(context):
    text = "a\r\n\tb\u2028\x00 'q' \"$x\" `y` \\n\n"
    await ask(WriteFileTool(), context, path="it's/a b.txt", content=text)
    assert await context.sandbox.read_file("it's/a b.txt") == text.encode()


async def test_a_file_that_cannot_be_written_is_answered(context):
    await context.sandbox.write_file("d/f", "")
    assert "directory" in (await ask(WriteFileTool(), context, path="d", content=""))["error"]
    assert "d/f/g" in (await ask(WriteFileTool(), context, path="d/f/g", content=""))["error"]


async def test_the_todo_list_is_replaced_merged_and_kept_per_rollout():
    first, other = SimpleNamespace(state={}), SimpleNamespace(state={})
    todos = [{"id": 1, "content": "look", "status": "in_progress"}, {"id": "b", "content": "write"}]
    answer = await ask(TodoTool(), first, todos=todos)
    assert answer["todos"][0] == {"id": "1", "content": "look", "status": "in_progress"}
    assert answer["todos"][1]["status"] == "pending"
    merged = await ask(
        TodoTool(), first, merge=True, todos=[{"id": "1", "status": "completed"}, {"id": "c", "content": "test"}]
    )
    assert [(item["id"], item["status"]) for item in merged["todos"]] == [
        ("1", "completed"), ("b", "pending"), ("c", "pending")
    ]  # fmt: skip
    assert merged["todos"][0]["content"] == "look"
    assert merged["summary"] == {"total": 3, "pending": 2, "in_progress": 0, "completed": 1, "cancelled": 0}
    assert await ask(TodoTool(), first) == merged
    assert (await ask(TodoTool(), other))["todos"] == []
    assert (await ask(TodoTool(), first, todos=[]))["todos"] == []


async def test_a_doubtful_todo_list_is_refused_and_the_old_one_kept():
    context = SimpleNamespace(state={})
    await ask(TodoTool(), context, todos=[{"id": "a", "content": "x"}])
    assert "twice" in (await ask(TodoTool(), context, todos=[{"id": "a", "content": "y"}, {"id": "a"}]))["error"]
    assert "content" in (await ask(TodoTool(), context, todos=[{"id": "z"}]))["error"]
    assert (await ask(TodoTool(), context))["todos"][0]["content"] == "x"
