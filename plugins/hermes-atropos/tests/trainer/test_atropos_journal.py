"""JSON Lines files are complete and in order, and errors are raised."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal

import pytest

from hermes_atropos.groups.ledger import End, Ledger
from hermes_atropos.trainer.journal import Journal, unused_path
from hermes_core.contracts.errors import OutputError


@contextlib.contextmanager
def largest_file(size):
    """Keep this process from writing larger files, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


async def journal_with_a_failed_write(path):
    """Return a journal whose line `{"n": 1, …}` did not fit on the disk, which has room again."""
    journal = Journal(path)
    with largest_file(4096):
        journal.append({"n": 1, "text": "x" * 10_000})
        await asyncio.wait([journal._writing])
    return journal


def numbers(path):
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


async def test_every_line_is_there_in_order_when_it_is_closed(tmp_path):
    journal = Journal(tmp_path / "new" / "a.jsonl")
    for number in range(100):
        journal.append({"n": number})
    await journal.aclose()
    assert numbers(tmp_path / "new" / "a.jsonl") == list(range(100))


async def test_a_file_that_is_there_is_continued(tmp_path):
    for number in range(2):
        journal = Journal(tmp_path / "a.jsonl")
        journal.append({"n": number})
        await journal.aclose()
    assert (tmp_path / "a.jsonl").read_text() == '{"n":0}\n{"n":1}\n'


def test_a_path_that_cannot_be_opened_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        Journal(tmp_path / "file" / "a.jsonl")


async def test_half_a_line_of_a_killed_process_is_cut_off_with_the_first_write(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n":0}\n{"n":')
    journal = Journal(path)
    assert path.read_text().endswith('{"n":'), "another process may be writing it"
    journal.append({"n": 1})
    await journal.aclose()
    assert path.read_text() == '{"n":0}\n{"n":1}\n'


async def test_a_write_that_fails_is_told_when_it_is_closed_and_leaves_no_half_line(tmp_path):
    journal = Journal(tmp_path / "a.jsonl")
    with largest_file(4096):
        journal.append({"text": "x" * 10_000})
        with pytest.raises(OutputError, match=r"a\.jsonl cannot be written: File too large"):
            await journal.aclose()
    assert (tmp_path / "a.jsonl").read_bytes() == b""


async def test_lines_that_could_not_be_written_are_written_with_the_next_ones_that_are_taken(tmp_path):
    journal = await journal_with_a_failed_write(tmp_path / "a.jsonl")
    with pytest.raises(OutputError, match=r"a\.jsonl cannot be written"):
        journal.append({"n": 2})
    journal.append({"n": 3})
    await journal.aclose()
    assert numbers(tmp_path / "a.jsonl") == [1, 3]


async def test_a_line_that_was_refused_and_is_added_again_is_there_once(tmp_path):
    journal = await journal_with_a_failed_write(tmp_path / "a.jsonl")
    with pytest.raises(OutputError):
        journal.append({"n": 2})
    journal.append({"n": 2})
    await journal.aclose()
    assert numbers(tmp_path / "a.jsonl") == [1, 2]


async def test_lines_that_could_not_be_written_are_tried_once_more_when_it_is_closed(tmp_path):
    journal = await journal_with_a_failed_write(tmp_path / "a.jsonl")
    await journal.aclose()
    assert numbers(tmp_path / "a.jsonl") == [1]


async def test_a_rollout_whose_line_was_refused_is_open_and_gets_it_later(tmp_path):
    journal = await journal_with_a_failed_write(tmp_path / "a.jsonl")
    ledger = Ledger(journal.append)
    with pytest.raises(OutputError), ledger.line("r", group_id="g"):
        ledger.close("r", End.SENT)
    await journal.aclose()
    _, line = (tmp_path / "a.jsonl").read_text().splitlines()
    assert (json.loads(line)["rollout_id"], json.loads(line)["end"]) == ("r", "errored")
    assert ledger.summary() == {"sent": 0, "rejected": 0, "errored": 1, "cancelled": 0, "open": 0}


def test_an_unused_name_is_found_beside_used_ones(tmp_path):
    assert unused_path(tmp_path / "g.jsonl") == tmp_path / "g.jsonl"
    (tmp_path / "g.jsonl").write_text("")
    (tmp_path / "g_1.jsonl").write_text("")
    assert unused_path(tmp_path / "g.jsonl") == tmp_path / "g_2.jsonl"
