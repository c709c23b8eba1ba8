"""After `kill -9` at any moment the same `process` goes on in the same file: nothing is lost and nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import lines

PROGRAM = Path(__file__).parents[1] / "support" / "killable_env.py"
SCORED = ["p0", "p1", "p3", "p4"]
MOMENTS = ("model:4", "data:3:half", "progress:3:after")
"""While groups are in flight, within a line, between the record of a group and the group."""
FURTHER = (
    "model:1",
    "model:9",
    "data:1:before",
    "data:1:half",
    "data:2:after",
    "data:4:after",
    "progress:1:half",
    "progress:2:half",
    "progress:2:after",
    "progress:6:before",
)


class Output:
    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "g.jsonl"
        self.ledger = folder / "ledger.jsonl"
        self.asked = folder / "asked.txt"

    def process(self, kill_at=""):
        """Run the command; returns it when it has ended."""
        own = [f"--env.data_path_to_save_groups={self.path}", f"--env.ledger_path={self.ledger}"]
        return subprocess.run(
            [sys.executable, PROGRAM, "process", *own],
            env={**os.environ, "KILL_AT": kill_at, "ASKED": str(self.asked)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def killed(self, moment):
        assert self.process(moment).returncode == -9

    def continued(self):
        done = self.process()
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tasks(self):
        whole = [line for line in self.path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        return sorted(group["group_overrides"]["task_id"] for group in map(json.loads, whole))

    def check(self):
        """Check that every group and every rollout is there once, and no other file."""
        sent = [about["rollout_id"] for group in lines(self.path) for about in group["overrides"]]
        ledger = lines(self.ledger)
        assert self.tasks() == SCORED
        assert len({line["rollout_id"] for line in ledger}) == len(ledger)
        ends = Counter(line["end"] for line in ledger)
        # The group that fails is repeated at each start.
        assert (ends["sent"], ends["errored"] > 0, ends["errored"] % 6) == (8, True, 0)
        assert set(ends) == {"sent", "errored"}
        assert sorted(sent) == sorted(line["rollout_id"] for line in ledger if line["end"] == "sent")
        assert sorted(self.folder.glob("*.jsonl")) == [self.path, self.ledger]
        assert (self.folder / "g.html").read_text().count("<h2") == len(SCORED)


@pytest.fixture
def output(tmp_path):
    return Output(tmp_path)


@pytest.mark.parametrize("moment", [*MOMENTS, *(pytest.param(one, marks=pytest.mark.slow) for one in FURTHER)])
def test_a_killed_process_goes_on_in_the_same_file_and_repeats_no_written_group(output, moment):
    output.killed(moment)
    # A record without its group is all that there may be of one.
    written = set(output.tasks()) if output.path.exists() else set()
    asked = output.asked.read_text() if output.asked.exists() else ""
    output.continued()
    output.check()
    questions = output.asked.read_text()[len(asked) :].split()
    assert not {f"p{question.partition('+')[0]}" for question in questions} & written


@pytest.mark.slow
def test_killing_it_again_and_again_ends_with_everything_once(output):
    for moment in ("model:1", "data:1:half", "data:1:after", "progress:1:half", "model:3"):
        output.killed(moment)
    output.continued()
    output.check()
