"""The files of a `process`: one process at a time, no file twice, and no error that hides another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, environment, lines, says

from hermes_atropos.trainer.journal import Journal
from hermes_atropos.trainer.process_output import ProcessOutput
from hermes_core.contracts.errors import ConfigError, ModelAuthError, OutputError

FORKS_AND_DIES = """
import os, pathlib, signal, sys
from hermes_atropos.trainer.process_output import ProcessOutput
output = ProcessOutput.open(pathlib.Path(sys.argv[1]), {})
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
OPENS = """
import pathlib, sys
from hermes_atropos.trainer.process_output import ProcessOutput
ProcessOutput.open(pathlib.Path(sys.argv[1]), {})
"""


def right(request):
    return says(str(2 * int(request.conversation.messages[0]["content"].partition("+")[0])))


def process(folder, answer=right, **fields):
    return environment(
        TokenDouble(answer), **{"data_path_to_save_groups": str(folder / "g.jsonl"), **fields}
    ).process_manager()


def test_workers_that_a_killed_process_has_forked_do_not_hold_its_output(tmp_path):
    with subprocess.Popen([sys.executable, "-c", FORKS_AND_DIES, tmp_path / "g.jsonl"], stdin=subprocess.PIPE) as dead:
        # The forked worker lives until the pipe is closed, at the end of this block.
        assert dead.wait(60) == -9
        ProcessOutput.open(tmp_path / "g.jsonl", {}).close()


def test_the_message_of_an_output_in_use_names_the_process(tmp_path):
    output = ProcessOutput.open(tmp_path / "g.jsonl", {})
    with pytest.raises(OutputError, match=f"process {os.getpid()} is writing to"):
        ProcessOutput.open(tmp_path / "g.jsonl", {})
    other = [sys.executable, "-c", OPENS, str(tmp_path / "g.jsonl")]
    refused = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
    assert f"process {os.getpid()} is writing to" in refused.stderr
    output.close()
    assert subprocess.run(other, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("name", ["g.jsonl", "g.jsonl.progress", "g.html", "../{}/g.jsonl"])
@pytest.mark.parametrize("is_resumed", [True, False])
async def test_a_ledger_in_a_file_of_the_groups_is_refused(tmp_path, name, is_resumed):
    if is_resumed:
        await process(tmp_path, total_steps=1)
    before = (tmp_path / "g.jsonl").read_bytes() if is_resumed else b""
    with pytest.raises(OutputError, match=r"which belongs to the groups in .*\n.*--env.ledger_path FILE"):
        await process(tmp_path, ledger_path=str(tmp_path / name.format(tmp_path.name)))
    assert not is_resumed or (tmp_path / "g.jsonl").read_bytes() == before


async def test_what_is_said_of_beginning_anew_is_true(tmp_path):
    await process(tmp_path)
    path = tmp_path / "g.jsonl"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(OutputError, match=r"remove g.jsonl and g.jsonl.progress to start again"):
        await process(tmp_path)
    path.unlink()
    (tmp_path / "g.jsonl.progress").unlink()
    counts = await process(tmp_path)
    assert (counts["groups_written"], counts["path"], len(lines(path))) == (2, path, 2)


async def test_a_page_that_cannot_be_written_is_logged_and_hides_no_error(tmp_path, caplog):
    (tmp_path / "g.html").mkdir()
    assert (await process(tmp_path))["groups_written"] == 2
    assert f"the page {tmp_path / 'g.html'} cannot be written" in caplog.text
    with pytest.raises(ModelAuthError):
        await process(tmp_path, lambda _request: ModelAuthError("401"), total_steps=3)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
async def test_a_full_disk_is_told_when_a_journal_is_closed():
    journal = Journal(Path("/dev/full"))
    journal.append({"n": 1})
    with pytest.raises(OutputError, match=r"/dev/full cannot be written: .*No space left"):
        await journal.aclose()


async def test_an_environment_is_processed_once(tmp_path):
    env = environment(TokenDouble(right), kind=PuzzleEnv, data_path_to_save_groups=str(tmp_path / "g.jsonl"))
    await env.process_manager()
    files = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"process_manager\(\) was already called on this PuzzleEnv"):
        await env.process_manager()
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == files
