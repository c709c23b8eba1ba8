"""The config of the README, run by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.component("bwrap")]
README = Path(__file__).parents[1] / "README.md"
TASKS = Path(__file__).parents[2] / "examples" / "terminal_tasks.jsonl"


def _run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "hermes_core.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("isolation", ["container+slot", "gvisor"])
def test_the_config_of_the_readme_runs_tasks(standin, tmp_path, isolation):
    text = README.read_text(encoding="utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
    assert "isolation: container+slot" in text
    (tmp_path / "run.yaml").write_text(text.replace("container+slot", isolation), encoding="utf-8")
    token = {"MODAL_TOKEN_ID": "ak-one", "MODAL_TOKEN_SECRET": "as-one", "MODAL_SERVER_URL": standin.url}
    done = _run(tmp_path, "run", str(TASKS), "--config", "run.yaml", "--max-tasks", "2", **token)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "out" / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reward"] for line in lines] == [1.0, 1.0]
    assert all(f'"isolation":"{isolation}"' in line for line in lines)
    assert not any("as-one" in line for line in lines)
