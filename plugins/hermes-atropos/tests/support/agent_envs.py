"""An `AgentEnv` in hermes-agent's shape, and ways to run it with a model that needs no server."""

from __future__ import annotations

import json
import re

from atropos_envs import PLUGINS, ChatDouble, says, server

from hermes_atropos import ToolCall
from hermes_atropos.agent.env import AgentEnv, AgentEnvConfig


def agent_config(**fields):
    defaults = {
        "tool_pool_mode": "local",
        "group_size": 2,
        "total_steps": 1,
        "ensure_scores_are_not_same": False,
        "plugins": PLUGINS,
    }
    return AgentEnvConfig(**{**defaults, **fields})


class NotesEnv(AgentEnv[AgentEnvConfig]):
    """Hides a word in a file of the workspace; the answer has to be read from there and written to another file."""

    name = "notes"
    model = None
    own_agent_config = None

    @classmethod
    def config_init(cls):
        return agent_config(), [server()]

    def build_model(self):
        return self.model

    async def setup_agent_env(self):
        self.items = [{"word": "heron"}, {"word": "egret"}]
        self.position = 0
        self.seen = []

    async def get_next_item(self):
        item = self.items[self.position % len(self.items)]
        self.position += 1
        return item

    def build_task(self, item):
        return "Copy the word in notes.txt to answer.txt, and tell me the word."

    def build_agent_config(self, item):
        return self.own_agent_config or super().build_agent_config(item)

    async def setup_trajectory_workspace(self, item, *, trajectory_id, exec_tool):
        call = ToolCall(name="write_file", arguments={"path": "notes.txt", "content": item["word"]})
        result = await exec_tool(call)
        assert result.success, result.error
        return {"written": result.metadata["size"]}

    async def score_trajectory(self, item, final_response):
        return 1.0 if item["word"] in final_response else 0.0

    async def verify_and_score_trajectory(
        self, item, final_response, *, trajectory_id, exec_tool, agent_result=None, workspace_meta=None
    ):
        found = await exec_tool(ToolCall(name="terminal", arguments={"command": "cat answer.txt"}))
        self.seen.append((trajectory_id, found, agent_result, workspace_meta))
        score = await self.score_trajectory(item, final_response)
        copied = found.output.strip() == item["word"]
        return (score + copied) / 2, {"copied": float(copied)}


def agent_env(model, kind=NotesEnv, servers=None, **fields):
    """Make an environment over a model double."""
    return type(kind.__name__, (kind,), {"model": model})(agent_config(**fields), servers or [server()])


def call_of(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def last_of(request):
    return request.conversation.messages[-1]["content"]


def responses(text):
    """Read the blocks of an observation."""
    return [json.loads(block) for block in re.findall(r"<tool_response>(.*?)</tool_response>", text, re.DOTALL)]


def copying(request):
    """Solve the task of `NotesEnv`."""
    turn = sum(message["role"] == "assistant" for message in request.conversation.messages)
    if turn == 0:
        return says("<think>Read first.</think>\n" + call_of("terminal", command="cat notes.txt"))
    word = responses(request.conversation.messages[3]["content"])[0]["output"]
    if turn == 1:
        return says("<think>Copy.</think>" + call_of("write_file", path="answer.txt", content=word))
    return says(f"<think>Done.</think>The word is {word}.")


def script(*texts):
    """Answer with these texts, one a turn."""

    def answer(request):
        turn = sum(message["role"] == "assistant" for message in request.conversation.messages)
        return says(texts[min(turn, len(texts) - 1)])

    return answer


async def run_one(answer, *, kind=NotesEnv, model=None, keep=False, **fields):
    """Run one rollout outside of any group; returns its outcome, the environment and the model."""
    model = model or ChatDouble(answer)
    env = agent_env(model, kind=kind, **fields)
    try:
        await env.setup()
        outcome = await env.run_item(await env.get_next_item())
    finally:
        await env.aclose()
    return outcome, env, model
