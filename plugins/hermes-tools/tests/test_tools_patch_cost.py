"""What `patch` may cost others: nothing is computed on the event loop, and the loosest search ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from hermes_sandbox import open_sandbox
from hermes_tools.files import patch as module
from hermes_tools.files.fuzzy import MatchError, find_edits
from hermes_tools.files.patch import PatchTool

CALLS = {
    "a short text": {"path": "f", "old_string": "b", "new_string": "x"},
    "text that is not there": {"path": "f", "old_string": "begin\nc\nend", "new_string": "x"},
    "a patch text": {"mode": "patch", "patch": "*** Begin Patch\n*** Update File: f\n a\n-b\n+x\n*** End Patch"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_nothing_is_searched_or_compared_on_the_event_loop(monkeypatch, call):
    threads = set()

    def noting(function):
        def call_and_note(*arguments, **options):
            threads.add(threading.get_ident())
            return function(*arguments, **options)

        return call_and_note

    for name in ("parse_patch", "find_edits", "place_hunks", "unified_diff"):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    async with open_sandbox("local") as sandbox:
        await sandbox.write_file("f", b"a\nb\n")
        await PatchTool().call(call, SimpleNamespace(sandbox=sandbox, state={}))
    assert threads
    assert threading.get_ident() not in threads


def test_a_file_full_of_what_is_nearly_there_is_given_up(monkeypatch):
    """Without a limit the last place of a thousand would be compared, and found."""
    monkeypatch.setattr("hermes_tools.files.fuzzy._ANCHOR_MAX_WORK", 20_000)
    nearly = "{\n" + "abcdefgh\n" * 5 + "zyxwvuts\n" * 5 + "}\n"
    there = "{\n" + "zyxwvuts\n" * 5 + "abcdefgh\n" * 4 + "abcdefgx\n" + "}\n"
    wanted = "{\n" + "zyxwvuts\n" * 5 + "abcdefgh\n" * 5 + "}"
    assert find_edits(nearly + there, wanted, "x")[0] == "block_anchor"
    with pytest.raises(MatchError, match="too much of the file begins and ends like it"):
        find_edits(nearly * 1000 + there, wanted, "x")
