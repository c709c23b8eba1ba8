"""Run code of an environment's author with a ToolContext, in every style of calling its methods."""

from __future__ import annotations

from atropos_envs import ChatDouble, PuzzleEnv, environment

from hermes_atropos import ToolContext

STYLES = ("called", "awaited", "ordinary", "asynchronous", "by_task_id")


async def run_author_code(use, style, **fields):
    """Call `use(do)` with a context in one style and return its result; `do(name, *args)` calls a method."""
    seen = []

    class Calling(PuzzleEnv):
        reward_needs_sandbox = True

        async def compute_reward(self, item, result, ctx):
            seen.append(await use(lambda name, *args, **options: self.done(ctx, name, *args, **options)))
            return 1.0

        async def done(self, ctx, name, *args, **options):
            if style == "called":
                return getattr(ctx, name)(*args, **options)
            return await getattr(ctx.asynchronous if style == "asynchronous" else ctx, name)(*args, **options)

        async def evaluate(self, *args, **kwargs):
            ctx = ToolContext("t")
            seen.append(await use(lambda name, *args, **options: self.done(ctx, name, *args, **options)))

    class Ordinary(PuzzleEnv):
        reward_needs_sandbox = True

        def compute_reward(self, item, result, ctx):
            async def do(name, *args, **options):
                return getattr(ctx, name)(*args, **options)

            try:
                use(do).send(None)
            except StopIteration as end:
                seen.append(end.value)
            return 1.0

    env = environment(ChatDouble(), kind=Ordinary if style == "ordinary" else Calling, **fields)
    await env.setup()
    try:
        if style == "by_task_id":
            await env._run_evaluate()
        else:
            outcome = await env.run_item(await env.get_next_item())
            assert outcome.reward == 1.0, outcome.reward_failure
    finally:
        await env.aclose()
    (answer,) = seen
    return answer
