"""`serve`: run groups for a trainer. When the queue is full, stop starting groups and let running ones finish."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from hermes_atropos.author_code.bridge import bridge_coroutine
from hermes_atropos.compat import EvalHandlingEnum
from hermes_atropos.environment import Environment
from hermes_atropos.groups.items import run_and_deliver
from hermes_atropos.trainer.api import Registration, TrajectoryApi
from hermes_atropos.trainer.delivery import Delivery
from hermes_core.contracts.errors import HermesError

logger = logging.getLogger(__name__)


class Serving:
    """One environment's service to one trainer."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._delivery = Delivery(env.config, TrajectoryApi(env.config.rollout_server_url))
        self._groups: dict[asyncio.Task[bool], float] = {}
        self._is_out_of_items = False
        self._registration: Registration | None = None
        self._follows_steps = env.config.total_steps == -1

    async def run(self) -> Mapping[str, int]:
        """Serve until all of the trainer's steps are done, and return the ledger's counts.

        When cancelled or after an error, it stops every rollout, waits for their clean-up, and records each in the
        ledger.
        """
        env, reason = self._env, "the service was stopped"
        try:
            env.require_trainable()
            await env.setup()
            await env.preflight()
            await self._begin()
            await self._serve()
            reason = "training has ended"
        finally:
            await self._stop(reason)
        counts = env.ledger.summary()
        logger.info("served: %s", counts)
        return counts

    async def _begin(self) -> None:
        env, delivery = self._env, self._delivery
        registration = await delivery.join()
        self._adopt(registration)
        env.curr_step = registration.starting_step
        if env.curr_step > 0:
            await asyncio.to_thread(env.load_checkpoint)
        if env.config.use_wandb:
            info = await delivery.api.wandb_info()
            env.wandb_group, env.wandb_project = info["group"], info["project"]
            env.begin_wandb()
        env.outlet.send = delivery.send

    def _adopt(self, registration: Registration | None) -> None:
        """Adopt the trainer's settings, at the start and after each new registration."""
        env = self._env
        if registration is None or registration is self._registration:
            return
        self._registration = registration
        env.env_id, env.wandb_prepend = registration.env_id, registration.wandb_name
        env.checkpoint_dir, env.checkpoint_interval = registration.checkpoint_dir, registration.checkpoint_interval
        env.max_token_len = registration.max_token_len
        if self._follows_steps:
            env.config.total_steps = registration.num_steps

    async def _serve(self) -> None:
        while True:
            status = await self._delivery.status()
            self._adopt(self._delivery.registration)
            self._env.status_dict = dict(status)
            await self._env.server.update_weight(float(status.get("env_weight", 1.0)))
            await self._step_checks(int(status["current_step"]))
            is_enough = self._is_enough(status)
            if status["current_step"] >= self._env.config.total_steps or (is_enough and not self._groups):
                return
            await self._admit(0 if is_enough else self.room(status))
            self._stop_overdue()
            await self._tick()

    def _is_enough(self, status: Mapping[str, Any]) -> bool:
        """Return whether the queue holds all that the trainer still needs; groups in flight are sent anyway."""
        config = self._env.config
        queued = status["queue_size"] * config.group_size // config.batch_size
        return bool(int(status["current_step"]) + queued > config.total_steps)

    def room(self, status: Mapping[str, Any]) -> int:
        """Return how many groups may be in flight now; running groups continue even if there are more."""
        env, config = self._env, self._env.config
        most = env.max_num_workers
        if env.eval_runner is not None and not env.eval_runner.done():
            if config.eval_handling == EvalHandlingEnum.STOP_TRAIN:
                return 0
            if config.eval_handling == EvalHandlingEnum.LIMIT_TRAIN:
                most = int(most * config.eval_limit_ratio)
        if config.max_batches_offpolicy <= 0:
            return most
        wanted = config.max_batches_offpolicy * env.derived_batch_size // config.group_size - status["queue_size"]
        if config.min_batch_allocation is not None:
            share = config.min_batch_allocation * config.batch_size * config.max_batches_offpolicy
            wanted = max(wanted, math.ceil(share / config.group_size) - status.get("self_queue_size", 0))
        return max(0, min(most, int(wanted)))

    async def _admit(self, room: int) -> None:
        env = self._env
        while len(self._groups) < room:
            item = env.backlog.pop() if env.backlog else await env.get_next_item()
            if item is None:
                self._tell_of_no_items()
                return
            self._is_out_of_items = False
            task = asyncio.create_task(self._run_item(item))
            self._groups[task] = time.monotonic()
            env.workers.add(task)

    def _tell_of_no_items(self) -> None:
        """Warn once that there is no item; polling continues, because an environment may have items later."""
        if not self._is_out_of_items:
            self._is_out_of_items = True
            logger.warning("get_next_item returned no item; waiting for one")

    async def _run_item(self, item: Any) -> bool:
        env, started = self._env, time.monotonic()
        try:
            is_delivered = await run_and_deliver(env, item, to_trainer=True)
        finally:
            await env.cleanup()
        duration = time.monotonic() - started
        env.task_duration.append(duration)
        (env.succeeded_task_duration if is_delivered else env.failed_task_duration).append(duration)
        env.last_completed_item = item
        return is_delivered

    async def _tick(self) -> None:
        """Wait until a group has ended or the next poll of the API is due."""
        interval = self._env.config.serve_poll_interval
        if not self._groups:
            await asyncio.sleep(interval)
            return
        done, _ = await asyncio.wait(self._groups, timeout=interval, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del self._groups[task]
            self._env.workers.discard(task)
            if not task.cancelled():
                task.result()  # raises errors that would fail every group

    def _stop_overdue(self) -> None:
        limit = self._env.config.worker_timeout
        if limit <= 0:
            return
        for task, started in self._groups.items():
            if time.monotonic() - started > limit and not task.cancelling():
                logger.warning("a group is stopped after %g s (worker_timeout)", limit)
                task.cancel(f"worker_timeout: {limit:g} s")

    async def _step_checks(self, step: int) -> None:
        env, config = self._env, self._env.config
        if step == env.curr_step:
            return
        if _crosses(env.curr_step, step, config.steps_per_eval):
            self._evaluate()
        if _crosses(env.curr_step, step, env.checkpoint_interval):
            await asyncio.to_thread(env.save_checkpoint, step // env.checkpoint_interval * env.checkpoint_interval)
        env.curr_step = step
        if env.items_sent_this_step >= config.min_items_sent_before_logging:
            env.items_sent_this_step = 0
            await env.wandb_log({})

    def _evaluate(self) -> None:
        env = self._env
        if env.eval_runner is not None and not env.eval_runner.done():
            logger.warning("the last evaluation is still running; this one is skipped")
            return
        env.eval_runner = asyncio.create_task(bridge_coroutine(env.evaluate()))
        env.eval_runner.add_done_callback(_tell_failure)

    async def _stop(self, reason: str) -> None:
        env = self._env
        tasks: list[asyncio.Task[Any]] = [*self._groups]
        if env.eval_runner is not None:
            tasks.append(env.eval_runner)
        for task in tasks:
            task.cancel(reason)
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and isinstance(task.exception(), HermesError):
                logger.error("while stopping: %s", task.exception())
        await self._delivery.leave()
        await env.aclose()


def _crosses(before: int, after: int, interval: int) -> bool:
    return interval > 0 and after // interval > before // interval


def _tell_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the evaluation failed: %s: %s", type(task.exception()).__name__, task.exception())
