"""Rewards in hermes-agent's style inside an environment: every method of its ToolContext, threads, bad shapes."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, environment

from hermes_atropos import ToolContext
from hermes_core.contracts.errors import UnavailableComponentError


class FilesEnv(PuzzleEnv):
    """The reward uses the methods of hermes-agent's ToolContext as its environments did."""

    reward_needs_sandbox = True

    async def compute_reward(self, item, result, ctx):
        self.answers = {
            "write": ctx.write_file("notes.txt", "first\n"),
            "read": ctx.read_file("notes.txt"),
            "terminal": ctx.terminal("cat notes.txt; exit 3", timeout=60),
            "search": ctx.search("first", path="."),
            "upload": ctx.upload_file(str(self.folder / "up" / "a.bin"), "a.bin"),
            "upload_missing": ctx.upload_file(str(self.folder / "none"), "b.bin"),
            "upload_dir": ctx.upload_dir(str(self.folder / "up"), "tree"),
            "download": ctx.download_file("tree/a.bin", str(self.folder / "down" / "a.bin")),
            "download_missing": ctx.download_file("none", str(self.folder / "none")),
            "download_dir": ctx.download_dir("tree", str(self.folder / "down")),
            "call_tool": ctx.call_tool("terminal", {"command": "echo raw"}),
        }
        asked = await self.server.chat_completion(messages=[{"role": "user", "content": "is it good?"}])
        self.judged = asked.choices[0].message.content
        return 1.0


async def test_every_file_method_of_hermes_agent_answers_with_its_keys(tmp_path):
    (tmp_path / "up" / "deep").mkdir(parents=True)
    (tmp_path / "up" / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "up" / "deep" / "b.txt").write_text("b")
    env = environment(ChatDouble(), kind=FilesEnv, group_size=1, min_group_size=1)
    env.folder = tmp_path
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert outcome.reward == 1.0, outcome.reward_failure
    answers = env.answers
    assert answers["terminal"] == {"exit_code": 3, "output": "first\n", "error": None}
    assert "first" in answers["read"]["content"]
    assert "error" not in answers["write"]
    assert "error" not in answers["search"]
    assert answers["upload"]["exit_code"] == 0
    assert answers["upload_missing"]["exit_code"] == -1
    assert [answer["exit_code"] for answer in answers["upload_dir"]] == [0, 0]
    assert answers["download"] == {"success": True, "bytes": 256}
    assert answers["download_missing"]["success"] is False
    assert answers["download_missing"]["error"]
    assert [answer["success"] for answer in answers["download_dir"]] == [True, True]
    assert (tmp_path / "down" / "deep" / "b.txt").read_text() == "b"
    assert json.loads(answers["call_tool"])["output"] == "raw"
    assert env.judged == "done"


async def test_an_ordinary_reward_runs_in_a_worker_thread():
    class Plain(PuzzleEnv):
        def compute_reward(self, item, result, ctx):
            self.thread = threading.current_thread()
            return 1.0 if ctx.terminal("true")["exit_code"] == 0 else 0.0

        reward_needs_sandbox = True

    env = environment(ChatDouble(), kind=Plain)
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert outcome.reward == 1.0, outcome.reward_failure
    assert env.thread is not threading.main_thread()


async def test_a_reward_that_yields_is_an_error_about_its_type():
    class Yielding(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            yield 1.0

    env = environment(ChatDouble(), kind=Yielding)
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert "expected compute_reward to return a number, got async_generator" in outcome.reward_failure.message


async def test_tasks_that_evaluate_starts_call_a_context_by_task_id_without_await():
    async def one(number):
        ctx = ToolContext(f"task-{number}")
        try:
            return ctx.terminal(f"echo {number}")["output"].strip()
        finally:
            ctx.cleanup()

    class Gathering(PuzzleEnv):
        async def evaluate(self, *args, **kwargs):
            return await asyncio.gather(*(asyncio.wait_for(one(number), 60) for number in range(3)))

    env = environment(ChatDouble(), kind=Gathering)
    assert await env._run_evaluate() == ["0", "1", "2"]


def test_without_greenlet_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "hermes_atropos.author_code.bridge")
    with pytest.raises(UnavailableComponentError, match=r"pip install hermes-atropos"):
        importlib.import_module("hermes_atropos.author_code.bridge")
