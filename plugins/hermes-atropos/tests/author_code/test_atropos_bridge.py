"""An `async def compute_reward` calls its context's methods with or without await, and blocks no other task."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import traceback

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from hermes_atropos import bridge_coroutine
from hermes_atropos.author_code.bridged_context import CALLED, reward_of
from hermes_core.contracts.errors import VerifierError
from hermes_core.rollout import RolloutContext
from hermes_testing.watching import TooSoon, with_more_time


class Context(RolloutContext):
    """A context with commands that wait on the event loop and return their own text."""

    def __init__(self, gate=None):
        super().__init__(None, rollout_id="r", sandbox=None)
        self.gate = gate
        self.log = []

    async def terminal(self, command, timeout=180):
        self.log.append(f"begin {command}")
        try:
            if command == "hang":
                await asyncio.Event().wait()
            for _ in range(5):
                await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
            if command == "raise":
                raise ValueError("no such command")
        finally:
            self.log.append(f"end {command}")
        return {"exit_code": 0, "output": command, "error": None}

    async def call_tool(self, tool_name, arguments):
        await asyncio.sleep(0)
        return json.dumps({"tool": tool_name, **arguments})

    async def exists(self, path):
        await asyncio.sleep(0)
        return False


async def reward(compute, context=None, item=None, result=None):
    return await reward_of(compute, item, result, context or Context())


async def test_calls_without_await_return_their_answers():
    async def compute(item, result, ctx):
        test = ctx.terminal("pytest", timeout=60)
        return 1.0 if test["exit_code"] == 0 and test["output"] == "pytest" else 0.0

    assert await reward(compute) == 1.0


async def test_awaited_calls_return_the_same():
    async def compute(item, result, ctx):
        test = await ctx.terminal("pytest")
        return test["output"], json.loads(await ctx.call_tool("t", {"a": 1})), await ctx.exists("x")

    assert await reward(compute) == ("pytest", {"tool": "t", "a": 1}, False)


async def test_an_answer_is_a_plain_dictionary_to_json_and_to_comparisons():
    async def compute(item, result, ctx):
        answer = ctx.terminal("x")
        assert json.loads(json.dumps(answer)) == answer
        assert isinstance(ctx.call_tool("t", {}), str)
        return answer == await answer

    assert await reward(compute) is True


async def test_real_awaits_between_the_calls_reach_the_event_loop():
    async def compute(item, result, ctx):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, "later")
        first = ctx.terminal("a")["output"]
        return [first, await future, ctx.terminal("b")["output"], await asyncio.to_thread(lambda: "thread")]

    assert await reward(compute) == ["a", "later", "b", "thread"]


@pytest.mark.parametrize("style", ["called", "awaited"])
async def test_an_error_is_raised_at_the_call_and_its_traceback_shows_both_sides(style):
    async def compute(item, result, ctx):
        try:
            ctx.terminal("raise") if style == "called" else await ctx.terminal("raise")
        except ValueError:
            return "caught"

    assert await reward(compute) == "caught"

    async def careless(item, result, ctx):
        return ctx.terminal("raise") if style == "called" else await ctx.terminal("raise")

    with pytest.raises(ValueError, match="no such command") as caught:
        await reward(careless)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names.index("careless") < names.index("terminal")


async def test_an_error_of_the_reward_itself_keeps_its_traceback():
    def judge():
        raise KeyError("missing")

    async def compute(item, result, ctx):
        ctx.terminal("a")
        judge()

    with pytest.raises(KeyError) as caught:
        await reward(compute)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2:] == ["compute", "judge"]


@pytest.mark.parametrize("style", ["called", "awaited"])
async def test_cancellation_in_the_middle_of_a_call_is_raised_there_and_cleans_up(style):
    context, seen = Context(), []

    async def compute(item, result, ctx):
        try:
            ctx.terminal("hang") if style == "called" else await ctx.terminal("hang")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append(ctx.terminal("clean up")["output"])

    task = asyncio.create_task(reward(compute, context))
    while "begin hang" not in context.log:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert seen == ["cancelled", "clean up"]
    assert context.log == ["begin hang", "end hang", "begin clean up", "end clean up"]


async def test_a_timeout_around_a_call_ends_it():
    async def attempt(seconds):
        context = Context()

        async def compute(item, result, ctx):
            try:
                async with asyncio.timeout(seconds):
                    ctx.terminal("hang")
            except TimeoutError:
                return ctx.terminal("after")["output"]

        answer = await reward(compute, context)
        TooSoon.unless("begin hang" in context.log, "the call had not begun")
        assert answer == "after"
        assert "end hang" in context.log
        assert asyncio.current_task().cancelling() == 0

    await with_more_time(attempt)


async def test_context_variables_are_those_of_the_task_in_both_directions():
    variable = contextvars.ContextVar("variable", default="none")
    seen = []

    class Looking(Context):
        async def terminal(self, command, timeout=180):
            seen.append(variable.get())
            await asyncio.sleep(0)
            variable.set("by the call")
            return {"output": command}

    async def compute(item, result, ctx):
        seen.append(variable.get())
        variable.set("by the reward")
        ctx.terminal("a")
        seen.append(variable.get())

    variable.set("by the caller")
    await reward(compute, Looking())
    assert seen == ["by the caller", "by the reward", "by the call"]
    assert variable.get() == "by the call"


async def test_the_running_task_and_loop_are_the_same_inside():
    here = asyncio.current_task()

    async def compute(item, result, ctx):
        ctx.terminal("a")
        return asyncio.current_task() is here and asyncio.get_running_loop() is here.get_loop()

    assert await reward(compute) is True


async def test_gather_takes_calls_of_the_reward_itself():
    async def compute(item, result, ctx):
        answers = await asyncio.gather(ctx.terminal("a"), ctx.terminal("b"))
        async with asyncio.TaskGroup() as tasks:
            third = tasks.create_task(ctx.terminal("c"))
            fourth = tasks.create_task(ctx.asynchronous.terminal("d"))
        return [answer["output"] for answer in [*answers, third.result(), fourth.result()]]

    assert await reward(compute) == ["a", "b", "c", "d"]


async def test_child_tasks_may_await_their_calls():
    async def check(ctx, name):
        return (await ctx.terminal(name))["output"]

    async def compute(item, result, ctx):
        return await asyncio.gather(check(ctx, "a"), check(ctx, "b"))

    context = Context()
    assert await reward(compute, context) == ["a", "b"]
    assert context.log[:2] == ["begin a", "begin b"], "they run at the same time"


@pytest.mark.parametrize("start", ["gather", "wait_for", "create_task", "TaskGroup"])
async def test_child_tasks_may_call_without_await(start):
    async def check(ctx, name):
        return ctx.terminal(name)["output"]

    async def compute(item, result, ctx):
        if start == "gather":
            return await asyncio.gather(check(ctx, "a"), check(ctx, "b"))
        if start == "wait_for":
            return [await asyncio.wait_for(check(ctx, name), 60) for name in "ab"]
        if start == "create_task":
            tasks = [asyncio.create_task(check(ctx, name)) for name in "ab"]
            return [await task for task in tasks]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(check(ctx, name)) for name in "ab"]
        return [task.result() for task in tasks]

    context = Context()
    assert await reward(compute, context) == ["a", "b"]
    together = context.log[:2] == ["begin a", "begin b"]
    assert together is (start != "wait_for"), "tasks of their own run at the same time"


async def test_children_of_children_may_call_too_and_be_cancelled():
    async def attempt(seconds):
        context = Context()

        async def inner(ctx):
            return ctx.terminal("hang")

        async def compute(item, result, ctx):
            never = asyncio.create_task(inner(ctx))
            never.cancel()
            return await asyncio.gather(asyncio.wait_for(inner(ctx), seconds), never, return_exceptions=True)

        errors = await reward(compute, context)
        TooSoon.unless("begin hang" in context.log, "the call had not begun")
        assert [type(error) for error in errors] == [TimeoutError, asyncio.CancelledError]
        assert context.log == ["begin hang", "end hang"]

    await with_more_time(attempt)


async def test_the_loops_own_way_of_making_tasks_is_as_before_afterwards():
    loop, made = asyncio.get_running_loop(), []

    def factory(loop, coroutine, **options):
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def compute(item, result, ctx):
        return await asyncio.gather(ctx.asynchronous.terminal("a"))

    await reward(compute)
    assert loop.get_task_factory() is None
    loop.set_task_factory(factory)
    await reward(compute)
    assert loop.get_task_factory() is factory
    loop.set_task_factory(None)
    assert len(made) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks that take their first step at once are new in 3.12")
async def test_tasks_that_take_their_first_step_at_once_may_call_too():
    async def check(ctx, name):
        return ctx.terminal(name)["output"]

    async def compute(item, result, ctx):
        return [*await asyncio.gather(check(ctx, "a"), check(ctx, "b")), ctx.terminal("c")["output"]]

    loop = asyncio.get_running_loop()
    loop.set_task_factory(vars(asyncio)["eager_task_factory"])  # there since Python 3.12
    try:
        assert await asyncio.create_task(reward(compute)) == ["a", "b", "c"]
    finally:
        loop.set_task_factory(None)


def elsewhere(coroutine):
    """Start a task from a callback, out of the reward's sight."""
    started = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: started.set_result(asyncio.ensure_future(coroutine)))
    return started


async def test_a_task_from_elsewhere_may_call_where_it_is_bridged():
    async def check(ctx):
        return ctx.terminal("a")["output"]

    async def compute(item, result, ctx):
        return await (await elsewhere(bridge_coroutine(check(ctx))))

    assert await reward(compute) == "a"


async def using(ctx):
    return ctx.terminal("x")["output"]


async def deciding(ctx):
    return 1.0 if ctx.terminal("x") else 0.0


async def asking(ctx):
    return ctx.terminal("x").get("output")


async def ignoring(ctx):
    ctx.write_file("x", "y")


@pytest.mark.parametrize("check", [using, deciding, asking, ignoring])
async def test_a_task_from_elsewhere_that_calls_without_await_is_told_what_to_do(check):
    async def compute(item, result, ctx):
        await (await elsewhere(check(ctx)))
        return 1.0

    hint = r"await ctx\.\w+\(…\), or run the task's work in .*bridge_coroutine\(coroutine\)"
    with pytest.raises(VerifierError, match=hint):
        await reward(compute)


async def test_a_method_that_hermes_agent_had_not_must_be_awaited():
    async def compute(item, result, ctx):
        return 1.0 if ctx.exists("solution.py") else 0.0

    with pytest.raises(VerifierError, match=r"ctx\.exists\(\).*\n.*await ctx\.exists\(…\)"):
        await reward(compute)


async def test_a_thread_that_the_reward_starts_calls_without_await():
    async def compute(item, result, ctx):
        return await asyncio.to_thread(lambda: ctx.terminal("in a thread")["output"])

    assert await reward(compute) == "in a thread"


async def test_rewards_nest():
    async def inner(item, result, ctx):
        return ctx.terminal("inner")["output"]

    async def compute(item, result, ctx):
        first = ctx.terminal("outer")["output"]
        return [first, await reward_of(inner, item, result, ctx.asynchronous), ctx.terminal("again")["output"]]

    assert await reward(compute) == ["outer", "inner", "again"]


async def test_generators_of_both_kinds_may_call():
    async def compute(item, result, ctx):
        def lines():
            for name in "ab":
                yield ctx.terminal(name)["output"]

        async def more():
            for name in "cd":
                await asyncio.sleep(0)
                yield ctx.terminal(name)["output"]

        return [*lines(), *[line async for line in more()]]

    assert await reward(compute) == ["a", "b", "c", "d"]


async def test_a_generator_used_outside_of_the_reward_does_not_wait():
    kept = []

    async def compute(item, result, ctx):
        kept.append(ctx.terminal(name)["output"] for name in ["late"])
        return 1.0

    await reward(compute)
    with pytest.raises(VerifierError, match="must be awaited"):
        next(kept[0])


async def test_a_reward_that_is_closed_in_the_middle_of_a_call_ends_its_call():
    context, seen = Context(), []

    async def compute(item, result, ctx):
        try:
            ctx.terminal("hang")
        finally:
            seen.append("closed")

    coroutine = reward(compute, context)
    while "begin hang" not in context.log:
        coroutine.send(None)
    coroutine.close()
    assert seen == ["closed"]
    assert context.log == ["begin hang", "end hang"]


async def test_stop_iteration_in_a_reward_is_an_error_and_not_a_result():
    async def compute(item, result, ctx):
        ctx.terminal("a")
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await reward(compute)


async def test_two_hundred_rewards_wait_together_while_other_tasks_run():
    """hermes-agent blocked the loop in each call: 0 ticks of another task."""
    gate, ticks = asyncio.Event(), []
    contexts = [Context(gate) for _ in range(200)]

    async def compute(item, result, ctx):
        return ctx.terminal("a")["exit_code"] + ctx.terminal("b")["exit_code"] + 1.0

    tasks = [asyncio.create_task(reward(compute, context)) for context in contexts]
    while not all(context.log for context in contexts):
        await asyncio.sleep(0)
    for tick in range(1000):
        await asyncio.sleep(0)
        ticks.append(tick)
    assert not any(task.done() for task in tasks), "all 200 are in the middle of a call"
    gate.set()
    assert await asyncio.gather(*tasks) == [1.0] * 200
    assert len(ticks) == 1000


@pytest.mark.parametrize("name", sorted(CALLED))
def test_every_method_of_hermes_agent_is_a_coroutine_function_of_ours(name):
    assert asyncio.iscoroutinefunction(getattr(RolloutContext, name))
