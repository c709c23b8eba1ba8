"""The tool `patch`, against a real sandbox: both modes, all or nothing, line endings and file modes kept."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from hermes_sandbox import open_sandbox
from hermes_tools.files.patch import PatchTool


@pytest.fixture
async def context():
    async with open_sandbox("local") as sandbox:
        yield SimpleNamespace(sandbox=sandbox, state={})


async def patch(context, **arguments):
    result = await PatchTool().call(arguments, context)
    answer = json.loads(result.content)
    assert (result.error is None) == ("error" not in answer)
    return answer


async def replace(context, old, new, path="f", **more):
    return await patch(context, path=path, old_string=old, new_string=new, **more)


async def apply(context, body):
    return await patch(context, mode="patch", patch=f"*** Begin Patch\n{body.strip(chr(10))}\n*** End Patch")


async def put(context, text, path="f", mode=None):
    await context.sandbox.write_file(path, text, mode=mode)


async def content(context, path="f"):
    return await context.sandbox.read_file(path)


async def test_one_occurrence_is_replaced_and_the_diff_answered(context):
    await put(context, "a\nb\nc\n")
    answer = await replace(context, "b\n", "B\nBB\n")
    assert await content(context) == b"a\nB\nBB\nc\n"
    assert answer["diff"] == "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n"
    assert (answer["strategy"], answer["replacements"], answer["files_modified"]) == ("exact", 1, ["f"])
    assert "note" not in answer


async def test_an_ambiguous_text_is_refused_unless_all_are_meant(context):
    await put(context, "x = 1\ny = 1\n")
    answer = await replace(context, "= 1", "= 2")
    assert "2 times" in answer["error"]
    assert "1, 2" in answer["error"]
    assert await content(context) == b"x = 1\ny = 1\n"
    assert (await replace(context, "= 1", "= 2", replace_all=True))["replacements"] == 2
    assert await content(context) == b"x = 2\ny = 2\n"


async def test_text_that_is_not_there_is_answered_with_the_nearest_line(context):
    await put(context, "def alpha():\n    return 1\n")
    answer = await replace(context, "def alpa(x):\n    yield", "z")
    assert "line 1" in answer["error"]
    assert "def alpha():" in answer["error"]


REFUSED = [
    ({"path": "f", "old_string": "a"}, "needs new_string"),
    ({"path": "f", "old_string": "", "new_string": "x"}, "write_file"),
    ({"path": "f", "old_string": "a", "new_string": "a"}, "the same"),
    ({"mode": "patch"}, "needs patch"),
    ({"path": "no", "old_string": "a", "new_string": "b"}, "File not found: no"),
    ({"path": ".", "old_string": "a", "new_string": "b"}, "directory"),
    ({"path": "bin", "old_string": "a", "new_string": "b"}, "binary"),
]


async def test_a_call_that_cannot_be_carried_out_is_answered(context):
    await put(context, "a\n")
    await put(context, b"\0\1", "bin")
    for arguments, words in REFUSED:
        assert words in (await patch(context, **arguments))["error"]
    assert await content(context) == b"a\n"


async def test_a_misspelt_path_lists_similar_files(context):
    await put(context, "a", "src/main.py")
    assert (await replace(context, "a", "b", path="src/mian.py"))["similar_files"] == ["src/main.py"]


async def test_the_file_mode_is_kept(context):
    await put(context, "#!/bin/sh\necho a\n", "run.sh", mode=0o755)
    await replace(context, "echo a", "echo b", path="run.sh")
    assert (await context.sandbox.stat("run.sh")).mode & 0o777 == 0o755
    await apply(context, "*** Update File: run.sh\n*** Move to: bin/go\n@@\n-echo b\n+echo c")
    assert (await context.sandbox.stat("bin/go")).mode & 0o777 == 0o755


@pytest.mark.parametrize("before", [b"a\r\nb\r\nc\r\n", b"a\r\nb\r\nc"])
async def test_windows_line_endings_are_kept(context, before):
    await put(context, before)
    await replace(context, "a\nb", "A\nnew\nB")
    assert await content(context) == before.replace(b"a\r\nb", b"A\r\nnew\r\nB")
    await apply(context, "*** Update File: f\n@@\n new\n-B\n+x\n+y")
    assert await content(context) == before.replace(b"a\r\nb", b"A\r\nnew\r\nx\r\ny")


async def test_mixed_endings_other_encodings_and_marks_survive_elsewhere(context):
    await put(context, b"\xef\xbb\xbfone\r\ntwo\nthr\xe9e\r\n\x85end")
    await replace(context, "two\n", "2\n")
    assert await content(context) == b"\xef\xbb\xbfone\r\n2\nthr\xe9e\r\n\x85end"


async def test_a_missing_last_newline_stays_missing(context):
    await put(context, "a\nb")
    await replace(context, "a\nb\n", "a\nc\n")
    assert await content(context) == b"a\nc"
    await apply(context, "*** Update File: f\n@@\n c\n+d")
    assert await content(context) == b"a\nc\nd"


async def test_a_patch_text_adds_updates_moves_and_deletes(context):
    await put(context, "def f():\n    return 1\n\ndef g():\n    return 1\n", "m.py")
    await put(context, "old\n", "gone.txt")
    await put(context, "keep\n", "from.txt")
    answer = await apply(
        context,
        """
*** Add File: new/x.txt
+first
+
+third
*** Update File: m.py
@@ def g():
-    return 1
+    return 2
*** Delete File: gone.txt
*** Update File: from.txt
*** Move to: to.txt
""",
    )
    assert await content(context, "new/x.txt") == b"first\n\nthird\n"
    assert await content(context, "m.py") == b"def f():\n    return 1\n\ndef g():\n    return 2\n"
    assert await content(context, "to.txt") == b"keep\n"
    names = {entry.path for entry in await context.sandbox.list_dir(".")}
    assert not names & {"gone.txt", "from.txt"}
    assert answer["files_modified"] == ["m.py"]
    assert sorted(answer["files_created"]) == ["new/x.txt", "to.txt"]
    assert sorted(answer["files_deleted"]) == ["from.txt", "gone.txt"]
    assert "+++ b/new/x.txt" in answer["diff"]
    assert "--- a/gone.txt\n+++ /dev/null" in answer["diff"]


async def test_a_patch_is_applied_whole_or_not_at_all(context):
    await put(context, "a\n", "one")
    await put(context, "b\n", "two")
    answer = await apply(context, "*** Update File: one\n@@\n-a\n+A\n*** Update File: two\n@@\n-nothing like it\n+B")
    assert "two" in answer["error"]
    assert await content(context, "one") == b"a\n"
    answer = await apply(context, "*** Update File: one\n@@\n-a\n+A\n*** Add File: two/x\n+y")
    assert "error" in answer
    assert await content(context, "one") == b"a\n"


async def test_what_was_written_is_put_back_when_a_later_write_fails(context):
    await put(context, "a\n", "one")
    await put(context, "b\n", "two")
    real = context.sandbox

    async def write_file(path, data, *, mode=None):
        if path.endswith("two"):
            raise OSError(28, "No space left on device")
        await real.write_file(path, data, mode=mode)

    names = ("workspace", "exec", "read_file", "stat", "list_dir", "remove")
    full = SimpleNamespace(write_file=write_file, **{name: getattr(real, name) for name in names})
    body = "*** Update File: one\n@@\n-a\n+A\n*** Add File: three\n+c\n*** Update File: two\n@@\n-b\n+B"
    answer = await apply(SimpleNamespace(sandbox=full), body)
    assert "No space left" in answer["error"]
    assert await content(context, "one") == b"a\n"
    assert {entry.path for entry in await real.list_dir(".")} >= {"one", "two"}
    assert "three" not in {entry.path for entry in await real.list_dir(".")}


async def test_several_hunks_and_the_same_file_twice(context):
    await put(context, "".join(f"line {n}\n" for n in range(1, 31)))
    await apply(
        context,
        "*** Update File: f\n@@\n line 2\n-line 3\n+three\n line 4\n@@\n-line 20\n+twenty\n+and more\n"
        "*** Update File: f\n@@\n three\n-line 4\n",
    )
    lines = (await content(context)).decode().split("\n")
    assert lines[:4] == ["line 1", "line 2", "three", "line 5"]
    assert lines[18:21] == ["twenty", "and more", "line 21"]


async def test_a_hunk_that_fits_in_several_places_needs_an_anchor(context):
    await put(context, "class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n")
    body = " def f(self):\n-        pass\n+        return 1"
    answer = await apply(context, f"*** Update File: f\n@@\n    {body}")
    assert "fits in 2 places (lines 2, 6)" in answer["error"]
    await apply(context, f"*** Update File: f\n@@ class B:\n    {body}")
    assert (await content(context)).decode().endswith("class B:\n    def f(self):\n        return 1\n")
    assert (await content(context)).decode().startswith("class A:\n    def f(self):\n        pass\n")


async def test_line_numbers_of_a_unified_diff_settle_the_place(context):
    await put(context, "x\ny\nx\ny\n")
    await apply(context, "*** Update File: f\n@@ -3,2 +3,2 @@\n x\n-y\n+z")
    assert await content(context) == b"x\ny\nx\nz\n"


async def test_lines_are_added_after_an_anchor_or_at_the_end(context):
    await put(context, "a\nb\n")
    await apply(context, "*** Update File: f\n@@ a\n+after a")
    await apply(context, "*** Update File: f\n@@\n+last\n*** End of File")
    assert await content(context) == b"a\nafter a\nb\nlast\n"
    assert "where" in (await apply(context, "*** Update File: f\n@@\n+lost"))["error"]


async def test_context_keeps_the_files_own_text_and_new_lines_its_indentation(context):
    await put(context, "def f():\n\tif x:  \n\t\treturn \u201cone\u201d\n")
    answer = await apply(context, '*** Update File: f\n@@\n if x:\n-    return "one"\n+    y()\n+    return 2')
    assert await content(context) == b"def f():\n\tif x:  \n\t\ty()\n\t\treturn 2\n"
    assert "note" in answer


MALFORMED = [
    ("*** Update File: f\n@@\n-a\n+b", "Begin Patch"),
    ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b", "End Patch"),
    ("*** Begin Patch\n*** End Patch", "changes no file"),
    ("*** Begin Patch\nhello\n*** End Patch", "Line 2"),
    ("*** Begin Patch\n*** Update File: f\n@@\n-a\nb\n*** End Patch", "Line 5"),
    ("*** Begin Patch\n*** Update File: f\n@@\n a\n*** End Patch", "changes nothing"),
    ("*** Begin Patch\n*** Update File: f\n*** End Patch", "not followed"),
    ("*** Begin Patch\n*** Add File: f\n+x\n*** End Patch", "exists"),
    ("*** Begin Patch\n*** Add File: g\nx\n*** End Patch", "Line 3"),
    ("*** Begin Patch\n*** Delete File: g\n*** End Patch", "File not found: g"),
    ("*** Begin Patch\n*** Update File: f\n*** Move to: h\n*** End Patch", "exists"),
    ("*** Begin Patch\n*** Rename File: f\n*** End Patch", "Line 2"),
    ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+a\n*** End Patch", "as it is"),
]


async def test_a_patch_text_that_is_not_understood_changes_nothing(context):
    await put(context, "a\n")
    await put(context, "h\n", "h")
    for text, words in MALFORMED:
        assert words in (await patch(context, mode="patch", patch=text))["error"]
    assert await content(context) == b"a\n"


async def test_paths_with_quotes_and_spaces_are_literal(context):
    await put(context, "a\n", "it's/a $(b) file")
    assert (await replace(context, "a", "b", path="it's/a $(b) file"))["files_modified"] == ["it's/a $(b) file"]
    assert await content(context, "it's/a $(b) file") == b"b\n"
