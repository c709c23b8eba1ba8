"""The stand-in's answers have the shape of a real Nomad's, and it reports unknown requests."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from nomad_backends import Backends
from nomad_shapes import RECORDED, differences
from nomad_standin import StandIn

from hermes_core.contracts.sandbox import SandboxSpec

pytestmark = pytest.mark.component("bwrap")
SLOT = SandboxSpec(isolation="container+slot", network="none")


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Plain HTTP."""
    async with aiohttp.ClientSession() as session:
        yield session


async def _get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        assert set(answer.headers) >= {"X-Nomad-Index", "X-Nomad-Knownleader", "X-Nomad-Lastcontact"}
        return await answer.json()


async def test_every_answer_has_the_keys_and_types_of_the_recorded_ones(
    standin: StandIn, backends: Backends, session: aiohttp.ClientSession
) -> None:
    backend = backends(slots_per_container=1)
    async with await backend.open(SLOT) as sandbox, await backend.open(SLOT):
        (job,) = standin.tell("jobs")
        base = f"{standin.address}/v1"
        evaluations = await _get(session, f"{base}/job/{job}/evaluations")
        answers = {
            "leader": f"{base}/status/leader",
            "job": f"{base}/job/{job}",
            "evaluations": f"{base}/job/{job}/evaluations",
            "evaluation": f"{base}/evaluation/{evaluations[0]['ID']}",
            "allocations": f"{base}/job/{job}/allocations",
            "allocation": f"{base}/allocation/{sandbox.provenance['allocation']['id']}",
            "summary": f"{base}/job/{job}/summary",
            "scale_status": f"{base}/job/{job}/scale",
        }
        for kind, url in answers.items():
            assert differences(kind, await _get(session, url)) == [], kind
        async with session.get(f"{base}/job/nope") as missing:
            assert (missing.status, await missing.text()) == (404, RECORDED["agent_self_404"]["body"])


@pytest.mark.parametrize(
    "kind",
    ["register", "deregister", "evaluation", "evaluations", "allocations", "allocation", "summary", "scale_status"],
)
def test_a_missing_a_new_and_a_changed_field_are_found(kind: str) -> None:
    sample = {"evaluations": "job_evaluations_unplaceable", "summary": "job_summary"}.get(kind, kind)
    body = RECORDED[sample]["body"]
    assert differences(kind, body) == []
    first = (lambda value: value[0]) if isinstance(body, list) else (lambda value: value)
    new, lacking, changed = (copy.deepcopy(body) for _ in range(3))
    first(new)["Invented"] = 1
    del first(lacking)["CreateIndex" if "CreateIndex" in first(body) else next(iter(first(body)))]
    name = next(key for key, value in first(body).items() if isinstance(value, str))
    first(changed)[name] = 7
    for wrong in (new, lacking, changed):
        assert differences(kind, wrong) != []


async def test_a_request_that_it_does_not_know_fails_and_is_remembered(
    standin_process: StandIn, session: aiohttp.ClientSession
) -> None:
    before = standin_process.tell("errors")
    async with session.get(f"{standin_process.address}/v1/agent/self") as answer:
        assert answer.status == 500
    assert standin_process.tell("errors")[len(before) :] == ["unknown request GET /v1/agent/self"]
    standin_process.forget()


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        (["sh", "-c", "echo err >&2; sleep 0.1; echo hi; exit 3"], "ws_exit3"),
        (["true"], "ws_exit0"),
        (["cat"], "ws_stdin"),
        (["nosuchcmd"], "ws_nosuch"),
        (["sh", "-c", "kill -9 $$"], "ws_killed"),
    ],
)
async def test_exec_has_the_frames_of_the_recorded_one(
    backends: Backends, session: aiohttp.ClientSession, command: list[str], recorded: str
) -> None:
    backend = backends()
    async with await backend.open(SLOT) as sandbox:
        query = {"task": "sandbox", "tty": "false", "command": json.dumps(command)}
        url = f"{backend.api.address.url}/v1/client/allocation/{sandbox.provenance['allocation']['id']}/exec"
        async with session.ws_connect(url, params=query) as websocket:
            if command == ["cat"]:
                data = base64.b64encode(b"hello\n").decode()
                await websocket.send_str(json.dumps({"stdin": {"data": data}}))
            await websocket.send_str('{"stdin":{"close":true}}')
            frames = [message.data async for message in websocket]
            frames.append(f"close_code={websocket.close_code}")
    assert frames == RECORDED[recorded]
