"""`process`: a number of groups, several at one time, into a file. No trainer, no trajectory API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_atropos.groups.items import play_item
from hermes_core.contracts.errors import HermesError

if TYPE_CHECKING:
    from hermes_atropos.base_env import HermesAgentBaseEnv

logger = logging.getLogger(__name__)


async def process(env: HermesAgentBaseEnv) -> Mapping[str, Any]:
    """Play `total_steps` groups and return the ledger's counts and how many groups were written.

    A group that fails is recorded and the next one goes on; an error that would hit every other group too ends it,
    with everything that was written kept.
    """
    try:
        await env.setup()
        await env.preflight()
        env.begin_wandb()
        return await _Processing(env).run()
    finally:
        await env.aclose()


class _Processing:
    def __init__(self, env: HermesAgentBaseEnv) -> None:
        self._env = env
        self._wanted = int(getattr(env, "n_groups_to_process", env.config.total_steps))
        self._taken = 0
        self._written = 0
        self._failed = 0
        self._taking = asyncio.Lock()

    async def run(self) -> Mapping[str, Any]:
        """Play until the wanted number of groups has been taken, or there are no more items."""
        workers = min(self._wanted, self._env.config.max_concurrent_groups)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise next((e for e in errors.exceptions if isinstance(e, HermesError)), errors.exceptions[0]) from None
        counts = {**self._env.ledger.summary(), "groups_written": self._written, "groups_failed": self._failed}
        logger.info("processed: %s", counts)
        return counts

    async def _work(self) -> None:
        while (item := await self._take()) is not None:
            await self._play(item)

    async def _take(self) -> Any:
        async with self._taking:
            if self._env.backlog:
                return self._env.backlog.pop()
            if self._taken >= self._wanted:
                return None
            item = await self._env.get_next_item()
            self._taken += 1 if item is not None else self._wanted
            return item

    async def _play(self, item: Any) -> None:
        if not await play_item(self._env, item, to_trainer=False):
            self._failed += 1
            return
        self._written += 1
        self._env.curr_step += 1
        await self._env.wandb_log()
