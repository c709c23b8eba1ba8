"""The output folder: torn lines are cut off, one run writes to it, and a full disk is an error."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.contracts.errors import OutputError
from hermes_core.contracts.model import encode
from hermes_runner.file_writing import JsonlFile, write_atomically
from hermes_runner.output import FolderTakenError, OutputFolder, without_samples
from hermes_runner.run.run_folders import discard_empty, link_latest, open_chosen


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def outcome(name, **fields):
    return {"rollout_id": name, "disposition": "score", **fields}


@pytest.fixture
def open_output(tmp_path):
    folders = []

    def open_folder(fingerprint=None, path=tmp_path / "out", **options):
        folders.append(OutputFolder.open(path, fingerprint or {}, facts={}, **options))
        return folders[-1]

    yield open_folder
    for folder in folders:
        folder.close()


def test_a_second_opening_knows_what_is_done(open_output):
    first = open_output()
    first.rollouts.append(outcome("a"))
    first.close()
    assert OutputFolder.open(first.path, {}, facts={}).done == {"a"}


@given(text=st.text(), cut=st.integers(min_value=1, max_value=60))
def test_a_torn_last_line_is_cut_off_and_the_rest_stays(tmp_path_factory, text, cut):
    path = tmp_path_factory.mktemp("torn") / "rollouts.jsonl"
    file = JsonlFile(path)
    file.append(outcome("a", text=text))
    whole = path.stat().st_size
    file.append(outcome("b", text=text))
    file.close()
    os.truncate(path, max(whole, path.stat().st_size - cut))
    JsonlFile(path).close()
    assert [line["rollout_id"] for line in lines(path)] == ["a"]


def test_a_torn_line_longer_than_the_reading_block_is_cut_off(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b'{"rollout_id":"a"}\n' + b"x" * 300_000)
    JsonlFile(path).close()
    assert path.read_bytes() == b'{"rollout_id":"a"}\n'


def test_a_write_that_fails_takes_nothing_from_another_writer(tmp_path, monkeypatch):
    path = tmp_path / "lines.jsonl"
    ours, theirs = JsonlFile(path), JsonlFile(path)
    written, write = [], os.write

    def full(descriptor, data):
        """Write a part of the first line, then fail as a full disk; the other writer tries to write meanwhile."""
        if written:
            other.start()
            other.join(0.2)
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write(descriptor, data[:10]))
        return 10

    def append():
        monkeypatch.setattr(os, "write", write)
        theirs.append(outcome("theirs"))

    other = threading.Thread(target=append)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="No space left"):
        ours.append(outcome("ours"))
    other.join(60)
    ours.append(outcome("ours"))
    assert [line["rollout_id"] for line in lines(path)] == ["theirs", "ours"]


def test_half_a_line_of_a_killed_writer_is_cut_off_by_another_ones_next_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    file = JsonlFile(path)
    file.append(outcome("a"))
    with path.open("ab") as killed:
        killed.write(b'{"rollout_id":')
    file.append(outcome("b"))
    assert [line["rollout_id"] for line in lines(path)] == ["a", "b"]


def test_two_runs_cannot_write_to_one_folder(open_output, tmp_path):
    open_output()
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from hermes_runner.output import OutputFolder
        OutputFolder.open(Path(sys.argv[1]), {}, facts={})
    """)
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert "another run is writing" in other.stderr


def test_a_different_run_is_refused_with_the_keys_that_differ(open_output):
    folder = open_output({"seed": 1, "model": "oracle"})
    folder.rollouts.append(outcome("a"))
    folder.close()
    with pytest.raises(OutputError, match="differs in seed"):
        open_output({"seed": 2, "model": "oracle"})


def test_a_start_that_recorded_nothing_does_not_fix_the_settings(open_output):
    open_output({"seed": 1}).close()
    assert open_output({"seed": 2}).manifest["fingerprint"] == {"seed": 2}


def test_a_folder_that_cannot_be_made_says_so(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(OutputError, match="--out"):
        OutputFolder.open(blocker / "out", {}, facts={})


def test_on_a_full_disk_the_line_is_written_whole_or_not_at_all(tmp_path):
    file = JsonlFile(tmp_path / "rollouts.jsonl")
    file.append(outcome("a"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="cannot write"):
            file.append(outcome("b", text="x" * 10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    file.append(outcome("c"))
    file.close()
    assert [line["rollout_id"] for line in lines(file.path)] == ["a", "c"]


def test_forgetting_failed_rollouts_moves_them_and_keeps_the_others(open_output):
    folder = open_output()
    folder.rollouts.append(outcome("good"))
    folder.rollouts.append(outcome("bad", disposition="drop"))
    for name in ("summary.json", "report.html"):
        folder.write_text(name, "of both")
    folder.close()
    assert open_output(retry_failed=True).done == {"good"}
    assert not [name for name in ("summary.json", "report.html") if (folder.path / name).exists()]
    assert [line["rollout_id"] for line in lines(folder.path / "rollouts.jsonl")] == ["good"]
    assert [line["rollout_id"] for line in lines(folder.path / "attempts.jsonl")] == ["bad"]


def test_failed_rollouts_of_a_run_in_progress_are_not_touched(open_output):
    folder = open_output()
    folder.rollouts.append(outcome("bad", disposition="drop"))
    with pytest.raises(OutputError, match="another run"):
        open_output(retry_failed=True)
    assert [line["rollout_id"] for line in lines(folder.path / "rollouts.jsonl")] == ["bad"]


def test_a_different_run_is_refused_before_its_failed_rollouts_are_moved(open_output):
    folder = open_output({"seed": 1})
    folder.rollouts.append(outcome("bad", disposition="drop"))
    folder.close()
    with pytest.raises(OutputError, match="differs in seed"):
        open_output({"seed": 2}, retry_failed=True)
    assert [line["rollout_id"] for line in lines(folder.path / "rollouts.jsonl")] == ["bad"]


def test_what_was_moved_before_a_kill_is_not_moved_again(open_output, tmp_path):
    folder = open_output()
    dropped, kept = outcome("a", disposition="drop"), outcome("b")
    folder.rollouts.append(dropped)
    folder.rollouts.append(kept)
    folder.attempts.append(dropped)
    folder.close()
    again = open_output(retry_failed=True)
    assert (lines(again.attempts.path), lines(again.rollouts.path)) == ([dropped], [kept])
    assert not (tmp_path / "out" / "rollouts.jsonl.kept").exists()


def test_a_run_writes_where_a_link_led_when_it_began(open_output, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "latest"
    link.symlink_to("one")
    folder = open_output(path=link)
    link.unlink()
    link.symlink_to("two")
    folder.rollouts.append(outcome("a"))
    folder.write_text("summary.json", "{}")
    assert lines(tmp_path / "one" / "rollouts.jsonl") == [outcome("a")]
    assert (tmp_path / "one" / "summary.json").read_text() == "{}"
    assert list((tmp_path / "two").iterdir()) == []


def test_a_grown_group_size_is_fixed_when_a_rollout_begins(open_output):
    first = open_output({"group_size": 2})
    first.rollouts.append(outcome("a"))
    first.close()
    open_output({"group_size": 4}).close()  # it could not start
    open_output({"group_size": 2}).close()
    grown = open_output({"group_size": 4})
    for name in ("summary.json", "report.html"):
        grown.write_text(name, "{}")
    grown.begin()
    grown.close()
    assert not [name for name in ("summary.json", "report.html") if (grown.path / name).exists()]
    with pytest.raises(OutputError, match="group_size"):
        open_output({"group_size": 2})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"group_size": 4, "seed": 1}, "differs in seed\n"),
        ({"group_size": 1, "seed": 1}, "differs in group_size, seed\n"),
    ],
)
def test_a_grown_group_size_is_no_difference_beside_others(open_output, changed, said):
    first = open_output({"group_size": 2, "seed": 0})
    first.rollouts.append(outcome("a"))
    first.close()
    with pytest.raises(OutputError) as caught:
        open_output(changed)
    assert said in str(caught.value)
    assert ("may grow" in str(caught.value)) == ("group_size" in said)


def test_a_line_that_only_begins_like_a_rollout_is_named_when_it_is_read(open_output):
    folder = open_output()
    folder.rollouts.append_line(b'{"rollout_id":"a","reward":\n')
    with pytest.raises(OutputError, match="line 1 is no rollout"):
        list(folder.outcomes())


def test_another_folder_is_chosen_if_the_chosen_one_is_taken_or_gone(open_output, tmp_path):
    taken, gone, free = tmp_path / "taken", tmp_path / "gone", tmp_path / "free"
    open_output(path=taken)

    def open_at(path):
        if path == gone:
            raise FolderTakenError("it is gone")
        return open_output(path=path)

    chosen = iter([taken, gone, free])
    assert open_chosen(lambda: next(chosen), open_at).path == free


def test_a_chosen_folder_that_cannot_be_written_is_not_left_behind(tmp_path):
    folder = tmp_path / "2026-11-28T00-00-00-tasks"
    folder.mkdir()

    def fail(path):
        raise OutputError(f"cannot write {path}")

    with pytest.raises(OutputError):
        open_chosen(lambda: folder, fail)
    assert list(tmp_path.iterdir()) == []


def test_latest_points_to_the_run_before_an_empty_folder_that_is_removed(tmp_path):
    old, new = (tmp_path / f"2026-11-2{day}T00-00-00-tasks" for day in (7, 8))
    for folder in (old, new):
        folder.mkdir()
        assert link_latest(folder) == ""
    discard_empty(new)
    assert ((tmp_path / "latest").readlink(), new.exists()) == (Path(old.name), False)


def test_a_damaged_line_in_the_middle_is_named_with_its_number(open_output):
    folder = open_output()
    folder.rollouts.append(outcome("a"))
    folder.rollouts.append_line(b"rubbish\n")
    folder.close()
    with pytest.raises(OutputError, match="line 2 is no rollout"):
        open_output()


def test_a_file_of_the_folder_is_replaced_whole(open_output):
    folder = open_output()
    folder.write_text("summary.json", "1")
    folder.write_text("summary.json", "22")
    assert (folder.path / "summary.json").read_text() == "22"
    assert not [path for path in Path(folder.path).iterdir() if path.name.startswith(".summary")]


def test_a_file_that_cannot_be_replaced_stays_and_its_draft_is_removed(tmp_path):
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        write_atomically(tmp_path / "summary.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_half_a_surrogate_pair_in_a_json_text_is_read_back(tmp_path):
    text = json.dumps({"a": "\ud800"}, ensure_ascii=False)
    assert json.loads(write_atomically(tmp_path / "a.json", text).read_text(encoding="utf-8")) == {"a": "\ud800"}


@pytest.mark.parametrize("text", ['a ,"samples":[1],"exactness":{} b', '],"exactness":', ',"samples":['])
@pytest.mark.parametrize("samples", [[], [{"tokens": [1, 2], "reason": '],"exactness":'}]])
def test_a_line_is_read_without_its_samples_whatever_its_texts_say(text, samples):
    value = {"rollout_id": "r", "messages": [{"content": text}], "provenance": {"samples": [text]}}
    report = {"counts": {"samples": 1}, "faults": [text]}
    read = json.loads(without_samples(encode({**value, "samples": samples, "exactness": report})))
    assert read == {**value, "exactness": report}


@pytest.mark.parametrize(
    "line", [b"", b"{", b'{"rollout_id":"r"}', b'{"exactness":null,"samples":[1]}', '{"samples":[1]}']
)
def test_a_line_of_another_form_is_read_as_it_is(line):
    assert without_samples(line) == line
