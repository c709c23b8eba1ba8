"""Whole runs on the stand-in, with the command line and with an old environment's config."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nomad_backends import Backends
from nomad_standin import StandIn
from pydantic import ValidationError

from hermes_atropos import OWNERS, AgentEnvConfig
from hermes_backend_nomad.options import NomadOptions
from hermes_testing.watching import eventually

_EXAMPLES = Path(__file__).parents[3] / "examples" / "terminal_tasks.jsonl"


@pytest.mark.slow
@pytest.mark.component("bwrap")
@pytest.mark.parametrize("isolation", ["container+slot", "container"])
def test_a_task_set_runs_on_nomad_by_changing_the_backend_s_name_only(
    standin: StandIn, tmp_path: Path, isolation: str
) -> None:
    options = {"nomad_address": standin.address, "sandbox_image": "hermes:1", "slots_per_container": 4}
    command = [
        sys.executable, "-m", "hermes_core.cli", "run", str(_EXAMPLES), "--model", "oracle", "--max-tasks", "4",
        "--terminal-backend", "nomad", "--backend-options", json.dumps(options), "--isolation", isolation,
        "--network", "none", "--mistake-rate", "0", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "out" / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    rollouts = [json.loads(line) for line in lines]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 4
    assert standin.running() == []


@pytest.mark.parametrize("field", [name for name, owners in OWNERS.items() if "nomad" in owners])
def test_every_field_of_an_old_config_is_an_option_with_the_same_default(field: str) -> None:
    ours, theirs = NomadOptions.model_fields[field], AgentEnvConfig.model_fields[field]
    # Left out where it is not set: then ours must mean the same. An address may be the environment's, and batches are
    # better not waited for.
    if field not in {"nomad_address", "tool_batch_window_ms"}:
        assert ours.default == theirs.default


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nomad_address": "nomad:4646"}, "expected http://HOST:PORT"),
        ({"min_containers": 3, "max_containers": 2}, "min_containers 3 is above max_containers 2"),
        ({"driver": "singularity"}, "singularity_image go together"),
        ({"singularity_image": "/x.sif"}, "singularity_image go together"),
        ({"client_cert": "/c.pem"}, "client_key go together"),
        ({"docker_config": {"init": True}}, "Nomad's docker driver has no init: .* never start"),
        ({"docker_config": {"network_mode": "host"}}, "cannot set network_mode"),
        ({"workspace": "relative"}, "absolute path"),
        ({"slot_per_container": 3}, "Extra inputs"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_reason(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NomadOptions(**options)


@pytest.mark.component("bwrap")
@pytest.mark.parametrize(
    ("fields", "isolation"),
    [
        ({"slots_per_container": 3, "tool_batch_window_ms": 1, "tool_max_batch_size": 7}, "container+slot"),
        ({"driver": "singularity", "singularity_image": "/images/small.sif"}, "container"),
    ],
)
async def test_an_old_config_opens_sandboxes_unchanged(
    standin: StandIn, backends: Backends, fields: dict[str, Any], isolation: str
) -> None:
    old = AgentEnvConfig(
        tool_pool_mode="nomad", nomad_address=standin.address, sandbox_image="hermes:1", allow_network=False,
        sandbox_job_id="old", min_containers=0, max_containers=3, acquire_timeout_s=120.0, purge_job_on_start=True,
        **fields,
    )  # fmt: skip
    options = dict(old.backend_ref().options)
    if "driver" in fields:
        options["singularity_program"] = str(Path(__file__).parent / "support" / "fake_apptainer.py")
    async with await backends(**options).open(old.sandbox_spec()) as sandbox:
        assert (sandbox.provenance["isolation"], sandbox.provenance["network"]) == (isolation, "none")
        assert sandbox.provenance["job"].startswith("old-")
        assert (await sandbox.exec("echo played")).output == "played\n"


_SCRIPT = 'read -r nonce; [ "$(cat made)" = yes ] && echo "$nonce made 1" || echo "$nonce made 0"'
_TASK = {
    "prompt": "Make a file.",
    "solution": ["sleep 5; echo yes > made"],
    "verifier": {"name": "script", "options": {"interpreter": "bash", "reward": "report", "script": _SCRIPT}},
}


@pytest.mark.slow
@pytest.mark.component("bwrap")
def test_a_container_that_is_evicted_costs_a_run_its_own_rollouts_only_and_those_are_repeated(
    standin: StandIn, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"id": f"t{n}", **_TASK}) + "\n" for n in range(6)), encoding="utf-8")
    options = {"nomad_address": standin.address, "sandbox_image": "hermes:1", "slots_per_container": 2}
    command = [
        sys.executable, "-m", "hermes_core.cli", "run", str(tasks), "--model", "oracle", "--mistake-rate", "0",
        "--terminal-backend", "nomad", "--backend-options", json.dumps(options), "--isolation", "container+slot",
        "--network", "none", "--max-concurrent", "6", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as run:
        assert asyncio.run(eventually(lambda: _runs_agents(standin, 3), seconds=60))
        standin.order("evict", standin.running()[0]["ID"])
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said.decode()
    rollouts = [
        json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 6
    # Two slots were in that container; all others lost nothing.
    attempts = [rollout["attempt"] for rollout in rollouts]
    assert attempts.count(1) >= 4
    assert max(attempts) <= 2


async def _runs_agents(standin: StandIn, number: int) -> bool:
    containers = {found["ID"] for found in await asyncio.to_thread(standin.running)}
    seen = await asyncio.to_thread(standin.tell, "seen")
    return sum(f"GET /v1/client/allocation/{found}/exec" in seen for found in containers) >= number
