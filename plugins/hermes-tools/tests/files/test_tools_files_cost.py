"""Reading and searching delay no other rollout: no file is processed on the event loop, and nothing takes long."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import pytest

from hermes_core.contracts.sandbox import FileStat
from hermes_sandbox import open_sandbox
from hermes_tools.files import read_file
from hermes_tools.files.read_file import ReadFileTool, similar_files
from hermes_tools.files.search_files import SearchFilesTool
from hermes_tools.files.search_script import read_counts, read_matches


async def test_lines_are_not_told_apart_on_the_event_loop(monkeypatch):
    threads = set()
    feed = read_file._Window.feed

    def noting(window, block):
        threads.add(threading.get_ident())
        feed(window, block)

    monkeypatch.setattr(read_file._Window, "feed", noting)
    async with open_sandbox("local") as sandbox:
        await sandbox.write_file("f", b"a\n" * 600_000 + b"b\n" * 600_000)
        answer = await ReadFileTool().call(
            {"path": "f", "offset": 600_000, "limit": 2}, SimpleNamespace(sandbox=sandbox, state={})
        )
    assert "600000|a\\n600001|b" in answer.content
    assert threads
    assert threading.get_ident() not in threads


# Output that a program which replaces the matcher could write. With each, a regular expression searched for days.
OUTPUTS = {
    "a path without end": b"a" * 2_000_000 + b"\0x",
    "notices without end": b"Binary file " + b" matches (" * 400_000 + b"\0" + b"1:\n",
    "notices that do not end": b"Binary file " + b" matches (" * 400_000 + b"\nf\0" + b"x",
    "numbers without end": b"f\0" + b"1" * 2_000_000 + b":\n",
    "many numbers": b"1:" * 1_000_000,
}


@pytest.mark.parametrize("raw", OUTPUTS.values(), ids=OUTPUTS)
def test_reading_results_ends_whatever_the_matcher_wrote(raw):
    assert len(read_matches(raw, 20)) <= 1
    assert read_counts(raw) == []


def test_results_are_read_as_the_matcher_wrote_them():
    raw = (
        b'Binary file x matches (found)\nb.bin: binary file matches (found "\\0" byte)\n'
        b"--\na\nb\x003:x: y\na\nb\x004-\nc\x001:\r\n"
    )
    found = [(match.path, match.line, match.text, match.after) for match in read_matches(raw, 1)]
    assert found == [("a\nb", 3, "x: y", [""]), ("c", 1, "", [])]
    assert read_counts(b"a\x003\nb\x000\nc\nd\x0012\n") == [("a", 3), ("c\nd", 12)]


async def test_many_names_are_compared_elsewhere_and_soon(monkeypatch):
    threads, like = set(), read_file._like

    def noting(*arguments):
        threads.add(threading.get_ident())
        return like(*arguments)

    monkeypatch.setattr(read_file, "_like", noting)
    letters = random.Random(3)
    names = ["".join(letters.choice("ab") for _ in range(199)) for _ in range(20_000)]
    entries = [FileStat(path=name, kind="file", size=0, mode=0o644, mtime=0.0) for name in names]

    async def list_dir(path):
        return entries

    missing = "d/" + names[0][:-1] + "c"
    found = await similar_files(SimpleNamespace(list_dir=list_dir), missing)
    assert found[0] == f"d/{names[0]}"
    assert len(found) == 5
    assert threads
    assert threading.get_ident() not in threads


async def test_a_glob_that_is_too_long_is_refused():
    async with open_sandbox("local") as sandbox:
        context = SimpleNamespace(sandbox=sandbox, state={})
        answer = await SearchFilesTool().call({"pattern": "{" + "," * 100_000, "target": "files"}, context)
    assert "A glob can have at most 1000 characters; this one has 100001." in answer.content
