"""Any reward gives the same result with and without awaited calls."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from hypothesis import given
from hypothesis import strategies as st

from hermes_atropos.author_code.bridged_context import reward_of
from hermes_core.rollout import RolloutContext

CALLS = st.builds(lambda steps, fails: ("call", steps, fails), st.integers(0, 3), st.booleans())
STEPS = CALLS | st.builds(lambda steps: ("sleep", steps), st.integers(0, 3))
PROGRAMS = st.recursive(
    STEPS,
    lambda inner: (
        st.builds(lambda parts: ("sequence", parts), st.lists(inner, max_size=4))
        | st.builds(lambda parts: ("gather", parts), st.lists(inner, max_size=3))
        | st.builds(lambda part: ("wait_for", part), inner)
        | st.builds(lambda part: ("caught", part), inner)
        | st.builds(lambda part: ("cancelled", part), inner)
        | st.builds(lambda part: ("generator", part), inner)
    ),
    max_leaves=10,
)


class Context(RolloutContext):
    def __init__(self):
        super().__init__(None, rollout_id="r", sandbox=None)
        self.running = 0

    async def terminal(self, command, timeout=180):
        steps, fails = command
        self.running += 1
        try:
            for _ in range(steps):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if fails:
            raise LookupError(steps)
        return {"output": steps}


async def run_program(ctx, program, style):
    kind, *rest = program
    match kind:
        case "call":
            answer = ctx.terminal(tuple(rest)) if style == "called" else await ctx.terminal(tuple(rest))
            return answer["output"]
        case "sleep":
            for _ in range(rest[0]):
                await asyncio.sleep(0)
            return None
        case "sequence":
            return [await run_program(ctx, part, style) for part in rest[0]]
        case "gather":
            found = await asyncio.gather(*(run_program(ctx, part, style) for part in rest[0]), return_exceptions=True)
            return [repr(one) if isinstance(one, Exception) else one for one in found]
        case "wait_for":
            return await asyncio.wait_for(run_program(ctx, rest[0], style), 60)
        case "caught":
            try:
                return await run_program(ctx, rest[0], style)
            except LookupError as error:
                return repr(error)
        case "cancelled":
            task = asyncio.create_task(run_program(ctx, rest[0], style))
            await asyncio.sleep(0)
            task.cancel()
            return repr(type((await asyncio.gather(task, return_exceptions=True))[0]))
        case "generator":
            return [one async for one in yield_result(ctx, rest[0], style)]


async def yield_result(ctx, program, style):
    yield await run_program(ctx, program, style)
    yield await run_program(ctx, program, style)


async def outcome(program, style):
    context = Context()

    async def compute(item, result, ctx):
        return await run_program(ctx, program, style)

    try:
        answer = await reward_of(compute, None, None, context)
    except LookupError as error:
        answer = repr(error)
    # A task that was cancelled right after it started another leaves that one to itself, without the bridge too.
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
    assert context.running == 0, "no call is left behind"
    assert asyncio.get_running_loop().get_task_factory() is None
    return answer


@given(PROGRAMS)
def test_a_reward_comes_to_the_same_in_both_styles(program):
    called, awaited = (asyncio.run(outcome(program, style)) for style in ("called", "awaited"))
    plain = asyncio.run(plainly(program))
    assert called == awaited
    assert called == plain


async def plainly(program):
    """Run it without the bridge at all."""
    context = Context()
    try:
        answer = await run_program(context, program, "awaited")
    except LookupError as error:
        answer = repr(error)
    return answer
