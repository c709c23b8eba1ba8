"""Files of JSON lines: in order, complete, and an error is told."""

from __future__ import annotations

import json

import pytest

from hermes_atropos.trainer.journal import Journal, unused_path
from hermes_core.contracts.errors import OutputError


async def test_every_line_is_there_in_order_when_it_is_closed(tmp_path):
    journal = Journal(tmp_path / "new" / "a.jsonl")
    for number in range(100):
        journal.append({"n": number})
    await journal.aclose()
    written = [json.loads(line)["n"] for line in (tmp_path / "new" / "a.jsonl").read_text().splitlines()]
    assert written == list(range(100))


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


async def test_a_write_that_fails_is_told_when_it_is_closed(tmp_path):
    journal = Journal(tmp_path / "a.jsonl")
    journal._file.close()
    journal.append({"n": 1})
    with pytest.raises(OutputError, match=r"a\.jsonl cannot be written"):
        await journal.aclose()


def test_an_unused_name_is_found_beside_used_ones(tmp_path):
    assert unused_path(tmp_path / "g.jsonl") == tmp_path / "g.jsonl"
    (tmp_path / "g.jsonl").write_text("")
    (tmp_path / "g_1.jsonl").write_text("")
    assert unused_path(tmp_path / "g.jsonl") == tmp_path / "g_2.jsonl"
