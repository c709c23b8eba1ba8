"""An `AgentEnv` whose tools run in the sandboxes of a tool executor's service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from services_backends import BoundedBackend, local_backend
from services_executor import plugins
from services_http import serve

from hermes_atropos import AgentEnv, AgentEnvConfig, APIServerConfig
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelReply, ModelRequest
from hermes_core.contracts.rollout import RolloutOutcome, StopReason
from hermes_tool_services import ToolExecutor
from hermes_tool_services.executor.service import ExecutorService
from hermes_tools.agent_tools import ToolCall

TOKEN = "secret-of-the-test"


class Model:
    """Reads the word in the workspace, writes it to another file, and tells it."""

    provenance: Mapping[str, Any] = {"protocol": "double", "model_name": "double"}

    async def check(self) -> None:
        pass

    async def chat(self, request: ModelRequest) -> ModelReply:
        turn = sum(message["role"] == "assistant" for message in request.conversation.messages)
        call = {"name": "terminal", "arguments": {"command": "cat notes.txt; cp notes.txt answer.txt", "timeout": 20}}
        return ModelReply(content=f"<tool_call>{json.dumps(call)}</tool_call>" if turn == 0 else "heron")

    async def aclose(self) -> None:
        pass


class NotesEnv(AgentEnv[AgentEnvConfig]):
    async def setup_agent_env(self) -> None:
        pass

    async def get_next_item(self) -> Any:
        return {"word": "heron"}

    def build_model(self) -> Any:
        return Model()

    def build_task(self, item: Any) -> str:
        return "Copy the word in notes.txt to answer.txt, and tell it."

    async def setup_trajectory_workspace(self, item: Any, *, trajectory_id: str, exec_tool: Any) -> Mapping[str, Any]:
        written = await exec_tool(ToolCall("write_file", {"path": "/workspace/notes.txt", "content": item["word"]}))
        return {"size": written.metadata["size"]}

    async def score_trajectory(self, item: Any, final_response: str) -> float:
        return float(item["word"] == final_response)

    async def verify_and_score_trajectory(self, item: Any, final_response: str, **hook: Any) -> Any:
        found = await hook["exec_tool"](ToolCall("read_file", {"path": "answer.txt"}))
        assert hook["workspace_meta"] == {"size": 5}
        return await self.score_trajectory(item, final_response), {"copied": float(found.output == item["word"])}


class Service:
    def __init__(self, backend: BoundedBackend, executor: ToolExecutor, url: str) -> None:
        self.backend = backend
        self.executor = executor
        self.url = url

    async def run_rollout(self, **fields: Any) -> RolloutOutcome:
        config = AgentEnvConfig(
            **{"tool_executor_url": self.url, "tool_executor_token": TOKEN, "enabled_toolsets": ["terminal"], **fields}
        )
        server = APIServerConfig(base_url="http://127.0.0.1:9/v1", model_name="m", api_key="x")
        env = NotesEnv(config, [server])
        try:
            await env.setup()
            return await env.run_item(await env.get_next_item())
        finally:
            await env.aclose()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    backend = BoundedBackend(local_backend(tmp_path), places=1, patience=0.5)
    async with (
        ToolExecutor(backend, registry=plugins()) as executor,
        serve(ExecutorService(executor, token=TOKEN).application()) as url,
    ):
        yield Service(backend, executor, url)
    await backend.aclose()


async def test_a_trajectory_is_set_up_run_verified_and_released_at_the_executor(service: Service) -> None:
    outcome = await service.run_rollout()
    assert (outcome.reward, dict(outcome.reward_parts)) == (1.0, {"copied": 1.0}), outcome
    assert (service.backend.most_open, service.backend.open_now) == (1, 0)
    assert "heron" in outcome.messages[3]["content"]


async def test_a_full_executor_does_not_give_a_reward_of_zero(service: Service) -> None:
    await service.executor.execute("somebody", ToolCall("terminal", {"command": "true"}))
    outcome = await service.run_rollout()
    assert outcome.stop_reason is StopReason.TOOL_BACKEND_ERROR
    assert outcome.reward is None
    assert "no place was free in time" in str(outcome.failure)


async def test_an_executor_that_is_not_there_or_refuses_is_an_error_at_the_start(service: Service) -> None:
    with pytest.raises(ConfigError, match="tool_executor_url: expected a tool executor at"):
        await service.run_rollout(tool_executor_url="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="status 403"):
        await service.run_rollout(tool_executor_token="wrong")
    with pytest.raises(ConfigError, match="set tool_executor_url"):
        await service.run_rollout(tool_executor_url=None)
