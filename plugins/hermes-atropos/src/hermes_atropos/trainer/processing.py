"""`process`: write a number of groups, run concurrently, to a file, without a trainer or trajectory API.

Items that are already in the file are not repeated; see `ProcessOutput`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes_atropos.environment import Environment
from hermes_atropos.groups.grouping import Group
from hermes_atropos.groups.item_run import ITEM, ItemRun
from hermes_atropos.groups.items import run_and_deliver
from hermes_atropos.trainer.item_digests import ItemDigests, is_json
from hermes_atropos.trainer.process_output import ProcessOutput, child_items
from hermes_atropos.trainer.process_settings import settings_of
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import HermesError, OutputError, UserError
from hermes_core.contracts.model import encode

logger = logging.getLogger(__name__)

_PATIENCE: Final = 4
"""Minimum number of groups in a row without an answer; all concurrent groups may fail together."""
_SETUP: Final = "setup"
_OUTSIDE: Final = "outside"
"""Keys of items that did not come from `get_next_item`."""


async def process(env: Environment) -> Mapping[str, Any]:
    """Run `total_steps` groups and return the ledger's counts and the number of written groups.

    A failed group is recorded, repeated by the next start, and does not stop the others; an error that would fail every
    group ends the process and keeps everything written.
    """
    output = None
    try:
        if env.outlet.path is not None:
            # Before setup, which may start or remove things that another process uses.
            ledger = env.config.ledger_path
            settings = settings_of(env.config, [handle.config for handle in env.server.servers])
            output = ProcessOutput.open(env.outlet.path, settings, ledger=None if ledger is None else Path(ledger))
            env.outlet.lead_to(output.path)
        await env.setup()
        return await _Processing(env, output).run()
    finally:
        try:
            await env.aclose()
        finally:
            if output is not None:
                await asyncio.to_thread(_close, output)


class _Processing:
    def __init__(self, env: Environment, output: ProcessOutput | None) -> None:
        self._env = env
        self._output = output
        self._own_id = secrets.token_hex(6)
        self._wanted = int(getattr(env, "n_groups_to_process", env.config.total_steps))
        self._taken = 0
        self._written = 0
        self._failed = 0
        self._to_rerun = 0
        self._unanswered_in_a_row = 0
        self._digests = ItemDigests()
        self._other_item: OutputError | None = None
        self._taking = asyncio.Lock()
        self._waiting: deque[tuple[str, Any]] = deque()

    async def run(self) -> Mapping[str, Any]:
        """Run until the number of groups is reached, or there are no more items."""
        before = await self._resume()
        # Filled again by each setup, so the keys are the same after a resume.
        self._queue(_SETUP, self._taken_backlog())
        first = await self._take()
        if first is not None:
            self._waiting.appendleft(first)
            await self._env.preflight()
            self._env.begin_wandb()
            await self._run_all()
        own = {"groups_written": self._written, "groups_failed": self._failed, "groups_before": before}
        own["groups_to_rerun"] = 0 if self._output is None else self._to_rerun
        about = {"path": self._env.outlet.path, "is_finished_before": first is None}
        counts = {**self._env.ledger.summary(), **own, **about}
        logger.info("processed: %s", counts)
        return counts

    async def _resume(self) -> int:
        """Restore the recorded state; return the number of groups written before."""
        if self._output is None:
            return 0
        self._output.begin(_digest_of_items(self._env.dataset_items))
        self._waiting.extend(self._output.backlog())
        self._env.outlet.outside = self._deliver_outside
        self._env.curr_step = self._output.written
        ledger = self._env.config.ledger_path
        if ledger is not None:
            self._env.ledger.write(await asyncio.to_thread(self._output.missing_lines, Path(ledger)))
        return self._output.written

    async def _run_all(self) -> None:
        workers = min(self._wanted, self._env.config.max_concurrent_groups)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise next((e for e in errors.exceptions if isinstance(e, HermesError)), errors.exceptions[0]) from None

    async def _work(self) -> None:
        while (taken := await self._take()) is not None:
            await self._run_item(*taken)

    async def _take(self) -> tuple[str, Any] | None:
        async with self._taking:
            if self._waiting:
                return self._waiting.popleft()
            while self._taken < self._wanted:
                item = await self._env.get_next_item()
                key = str(self._taken)
                self._taken += 1 if item is not None else self._wanted
                if item is not None and self._must_run(key, item):
                    self._require_same_items()
                    return key, item
            return None

    def _must_run(self, key: str, item: Any) -> bool:
        if self._output is None:
            return True
        item_digest = self._digests.digest(item)
        if key not in self._output.done:
            return True
        try:
            self._output.compare_item(key, item_digest)
        except OutputError as error:  # irrelevant if nothing is left to run
            self._other_item = self._other_item or error
        return False

    def _require_same_items(self) -> None:
        if self._other_item is not None:
            raise self._other_item

    def _queue(self, key: str, backlog: Sequence[Any]) -> None:
        self._waiting.extend(one for one in child_items(key, backlog) if self._must_run(*one))

    def _taken_backlog(self) -> list[Any]:
        """Take items that the author's code put into the environment's backlog."""
        backlog = list(self._env.backlog)
        self._env.backlog.clear()
        return backlog

    async def _run_item(self, key: str, item: Any) -> bool:
        """Run an item and record it; return whether it is finished."""
        item_run = ItemRun(key=key, output_id=self._own_id) if self._output is None else self._output.item_run(key)
        item_run.digest = "" if self._output is None else self._digests.digest(item)
        token = ITEM.set(item_run)
        try:
            is_written = await run_and_deliver(self._env, item, to_trainer=False)
            item_run.backlog += self._taken_backlog()
            with _outside_of_items():
                await self._run_unrecordable(item_run)
        except BaseException:
            # Report the error that ends the process.
            with contextlib.suppress(OutputError):
                await run_uncancelled(self._commit(item_run, is_done=False))
            raise
        finally:
            ITEM.reset(token)
        is_done = not item_run.is_failed
        await run_uncancelled(self._commit(item_run, is_done=is_done))
        if is_done:
            self._queue(key, item_run.backlog)
        self._give_up_on_a_dead_server(item_run.no_answer)
        await self._count(is_written=is_written and is_done, is_done=is_done)
        return is_done

    async def _run_unrecordable(self, item_run: ItemRun) -> None:
        """Run children that cannot be recorded as JSON before their parent is recorded."""
        if self._output is None or is_json(item_run.backlog):
            return
        backlog, item_run.backlog = item_run.backlog, []
        for child, item in child_items(item_run.key, backlog):
            if self._must_run(child, item) and not await self._run_item(child, item):
                item_run.is_failed = True

    async def _count(self, *, is_written: bool, is_done: bool) -> None:
        self._failed += not is_written
        self._to_rerun += not is_done
        if is_written:
            self._written += 1
            self._env.curr_step += 1
            await self._env.wandb_log()

    async def _deliver_outside(self, group: Group) -> bool:
        """Record a group that the author's own task delivers outside of any item."""
        assert self._output is not None
        item_run = self._output.item_run(f"{_OUTSIDE}.{secrets.token_hex(6)}")
        token = ITEM.set(item_run)
        try:
            await self._env.outlet.deliver(group, to_trainer=False)
        finally:
            ITEM.reset(token)
        await run_uncancelled(self._commit(item_run, is_done=True))
        await self._count(is_written=True, is_done=True)
        return True

    def _give_up_on_a_dead_server(self, said: str) -> None:
        """Stop if the server is down or refuses everything, before all remaining groups fail in the same way."""
        self._unanswered_in_a_row = self._unanswered_in_a_row + 1 if said else 0
        if self._unanswered_in_a_row >= max(_PATIENCE, min(self._wanted, self._env.config.max_concurrent_groups)):
            raise UserError(
                f"the model gave no answer in the last {self._unanswered_in_a_row} groups: {said}",
                hint="fix that, then rerun the same command to repeat them",
            )

    async def _commit(self, item_run: ItemRun, *, is_done: bool) -> None:
        lines: Sequence[Mapping[str, Any]] = item_run.ledger
        if self._output is not None:
            lines = await self._output.commit(item_run, is_done=is_done)
        self._env.ledger.write(lines)


@contextlib.contextmanager
def _outside_of_items() -> Iterator[None]:
    token = ITEM.set(None)
    try:
        yield
    finally:
        ITEM.reset(token)


def _digest_of_items(items: Sequence[Any]) -> str | None:
    """Return a digest of the items of `dataset_name`, or None if there are none or they are not JSON."""
    try:
        return hashlib.sha256(encode(items)).hexdigest() if items else None
    except (TypeError, ValueError):
        return None


def _close(output: ProcessOutput) -> None:
    try:
        output.write_page()
    finally:
        output.close()
