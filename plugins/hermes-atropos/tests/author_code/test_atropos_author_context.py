"""Results of a ToolContext for failing tools, in every style of calling it."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, environment
from author_styles import STYLES, run_author_code

MISSING = [
    ("web_search", ("x",)),
    ("web_extract", (["http://a.example"],)),
    ("browser_navigate", ("http://a.example",)),
    ("browser_snapshot", ()),
]


@pytest.mark.parametrize("style", STYLES)
async def test_a_method_without_its_tool_returns_an_error_and_a_warning_says_what_to_do(style, caplog):
    async def use(do):
        return [await do(name, *args) for name, args in MISSING]

    answers = await run_author_code(use, style)
    for (name, _), answer in zip(MISSING, answers, strict=True):
        assert list(answer) == ["error"]
        assert answer["error"].startswith(f"Unknown tool: {name}. ")
        assert "pip install" not in answer["error"]
        (warning,) = [line for line in caplog.messages if f"tool {name!r} is not available" in line]
        assert "add the plugin that declares it" in warning


@pytest.mark.parametrize("style", STYLES)
async def test_a_missing_tool_is_named_once_in_one_line(style, caplog):
    async def use(do):
        return [await do(*call) for call in [("web_search", "x"), ("call_tool", "web_search", {"query": "x"})] * 2]

    assert len(await run_author_code(use, style)) == 4
    (warning,) = [line for line in caplog.messages if "is not available" in line]
    assert "\n" not in warning


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("strangers", [{"task_id": "x"}, {"task_id": "x", "user_task": None, "9": 9}])
async def test_call_tool_leaves_out_what_a_tool_does_not_take(style, strangers, caplog):
    given = {"command": "echo out", **strangers}

    async def use(do):
        return json.loads(await do("call_tool", "terminal", given))

    assert (await run_author_code(use, style))["output"] == "out"
    assert given == {"command": "echo out", **strangers}
    assert f"drops arguments that tool 'terminal' does not have: {', '.join(sorted(strangers))}" in caplog.text


@pytest.mark.parametrize("style", [style for style in STYLES if style != "called"])
async def test_paths_may_be_path_objects(style, tmp_path):
    (tmp_path / "a").write_text("a")

    async def use(do):
        answers = [await do("write_file", Path("w"), "w"), await do("upload_file", tmp_path / "a", Path("u"))]
        await do("write_bytes", Path("d/x"), b"x")
        answers += [await do("download_dir", Path("d"), tmp_path / "d"), await do("read_file", Path("u"))]
        answers += [await do("search", "w", Path("w")), await do("exists", PurePosixPath("d") / "x")]
        return answers

    written, uploaded, downloaded, read, found, is_there = await run_author_code(use, style)
    assert "error" not in written
    assert uploaded["exit_code"] == 0
    assert [answer["success"] for answer in downloaded] == [True]
    assert "a" in read["content"]
    assert len(found["matches"]) == 1
    assert is_there is True


BAD_CALLS = {
    "unknown": ("terminl", {"command": "true"}, "Unknown tool: terminl. ", "declared: "),
    "no_name": (None, {}, "Unknown tool: None. ", "Expected the name of a tool, got NoneType."),
    "elsewhere": ("vision_analyze", {}, "Unknown tool: vision_analyze. ", ""),
    "missing_argument": ("terminal", {}, "Invalid arguments for terminal: ", "missing argument 'command'"),
    "wrong_type": ("sync_square", {"n": "many"}, "Invalid arguments for sync_square: ", "expected integer"),
    "no_object": ("terminal", None, "Tool arguments must be a JSON object", "got null"),
    "no_json": ("terminal", {"command": {1, 2}}, "Tool execution failed: ", "set"),
    "raises": ("boom", {}, "Tool execution failed: RuntimeError: boom number 1", ""),
    "exits": ("exits", {}, "Tool execution failed: SystemExit: 0", ""),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", BAD_CALLS)
async def test_call_tool_answers_a_call_that_fails_with_a_json_error(style, case):
    name, arguments, beginning, part = BAD_CALLS[case]

    async def use(do):
        return await do("call_tool", name, arguments)

    answer = await run_author_code(use, style)
    assert isinstance(answer, str)
    error = json.loads(answer)
    assert list(error) == ["error"]
    assert error["error"].startswith(beginning)
    assert part in error["error"]


@pytest.mark.parametrize("style", STYLES)
async def test_terminal_answers_both_streams_in_the_order_of_their_writes(style):
    async def use(do):
        return (await do("terminal", "for i in {1..300}; do echo o$i; echo e$i >&2; done"))["output"]

    expected = [f"{stream}{number}" for number in range(1, 301) for stream in "oe"]
    assert (await run_author_code(use, style)).split() == expected


@pytest.mark.parametrize("style", STYLES)
async def test_a_reward_goes_on_after_a_tool_that_is_not_there(style):
    async def use(do):
        found = await do("web_search", "x")
        return (await do("terminal", "echo without it"))["output"] if "error" in found else "found"

    assert await run_author_code(use, style) == "without it\n"


@pytest.mark.parametrize("style", STYLES)
async def test_a_call_that_python_cannot_make_raises_at_the_call(style):
    async def use(do):
        with pytest.raises(TypeError):
            await do("web_search")
        with pytest.raises(TypeError):
            await do("call_tool", "terminal", {}, "and more")
        return "raised"

    assert await run_author_code(use, style) == "raised"


@pytest.mark.parametrize("kind", ["async", "ordinary"])
async def test_a_lost_sandbox_gives_no_reward_and_no_result(kind):
    class Losing(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            return 0.0 if "error" in json.loads(ctx.call_tool("lost", {})) else 1.0

    class OrdinaryLosing(PuzzleEnv):
        def compute_reward(self, item, result, ctx):
            return 0.0 if "error" in json.loads(ctx.call_tool("lost", {})) else 1.0

    env = environment(ChatDouble(), kind=Losing if kind == "async" else OrdinaryLosing)
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert outcome.reward is None
    assert "the sandbox went away" in outcome.reward_failure.message


@pytest.mark.parametrize("name", ["web_search", "call_tool"])
async def test_a_context_that_was_cleaned_up_refuses_every_call(name):
    arguments = ("x",) if name == "web_search" else ("noop", {})

    class Cleaning(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            ctx.cleanup()
            return 0.0 if getattr(ctx, name)(*arguments) else 1.0

    env = environment(ChatDouble(), kind=Cleaning)
    await env.setup()
    outcome = await env.run_item(await env.get_next_item())
    await env.aclose()
    assert outcome.reward is None
    assert "has ended" in outcome.reward_failure.message


async def test_a_verifier_of_a_plugin_keeps_its_typed_errors():
    """Only an environment's own code is written for answers; a verifier that cannot judge must give no reward."""
    from hermes_core.contracts.errors import UnknownComponentError

    class Looking(PuzzleEnv):
        async def evaluate(self, *args, **kwargs):
            context = await self.server.own.context("t")
            with pytest.raises(UnknownComponentError, match="no loaded plugin declares tool 'web_search'"):
                await context.web_search("x")
            with pytest.raises(ValueError, match="missing argument 'command'"):
                await context.call_tool("terminal", {})

    env = environment(ChatDouble(), kind=Looking)
    await env._run_evaluate()
