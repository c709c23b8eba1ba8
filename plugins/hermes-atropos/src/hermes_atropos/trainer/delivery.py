"""Deliver groups to the trainer across restarts of the trajectory API, without loss or blind repetition."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.grouping import Group
from hermes_atropos.trainer.api import ApiAwayError, ApiForgotError, Patience, Registration, TrajectoryApi
from hermes_core.contracts.errors import ConfigError, UserError

logger = logging.getLogger(__name__)

_BACK_HINT = "start it and its trainer again; pending groups are kept and sent then"


class Delivery:
    """One environment's registration at the trajectory API, renewed after a restart of the API."""

    def __init__(self, config: HermesAgentEnvConfig, api: TrajectoryApi) -> None:
        self._config = config
        self.api = api
        self.registration: Registration | None = None
        self._env_id: int | None = None
        self._joining = asyncio.Lock()
        self._queued: deque[Group] = deque()
        self._sent = 0
        self._resends: set[asyncio.Task[None]] = set()

    def patience(self) -> Patience:
        """Return the configured patience, starting now."""
        return Patience(self._config.api_patience, self._config.serve_poll_interval)

    async def join(self) -> Registration:
        """Register and get the trainer's limits; raise `UserError` if there is no trainer for too long."""
        config = self._config
        fields = {
            "max_token_length": config.max_token_length,
            "desired_name": config.wandb_name or "hermes-agent",
            "weight": config.inference_weight,
            "min_batch_allocation": config.min_batch_allocation,
            "group_size": config.group_size,
        }
        registered = await self.api.register(fields, self.patience())
        self._env_id = registered.env_id
        info = await self.api.info()
        if info["batch_size"] != -1:
            config.batch_size = int(info["batch_size"])
        if config.batch_size == -1:
            raise UserError(
                "expected a batch size from the trainer, got none", hint="set batch_size in the env section"
            )
        if config.group_size > config.batch_size:
            raise ConfigError(
                f"expected a group_size of at most the trainer's batch_size {config.batch_size}, got "
                f"{config.group_size}",
                hint=f"--env.group_size {config.batch_size}, or a part of it",
            )
        # Assigned only when complete: a reader in between would adopt half of it and never read again.
        self.registration = replace(registered, max_token_len=int(info["max_token_len"]))
        return self.registration

    async def status(self) -> Mapping[str, Any]:
        """Return the API's status; wait while it is down, and register again after a restart."""
        patience = self.patience()
        while True:
            known = self._require_registration()
            sent_before = self._sent
            try:
                status = await self.api.status(known.env_id)
            except ApiAwayError as error:
                await patience.wait(error.message, _BACK_HINT)
            except ApiForgotError:
                await self._rejoin(known)
            else:
                self._forget_consumed(int(status.get("self_queue_size", 0)), sent_before)
                return status

    async def send(self, groups: Sequence[Group]) -> str:
        """Send groups; raise `ApiRefusedError` for groups that the API will never accept.

        A restarted API accepts data before its trainer is back and then refuses the trainer, so its status is checked
        first.
        """
        patience = self.patience()
        may_be_there = False
        while True:
            known = self._require_registration()
            try:
                await self.api.status(known.env_id)
                if may_be_there and await self.api.has(groups[-1]):
                    word = "received"
                else:
                    word = await self.api.send(groups, known.env_id)
            except ApiAwayError as error:
                may_be_there = may_be_there or error.may_have_run
                await patience.wait(error.message, _BACK_HINT)
            except ApiForgotError:
                may_be_there = False
                await self._rejoin(known)
            else:
                self._queued.extend(groups)
                self._sent += len(groups)
                return word

    async def leave(self) -> None:
        """Unregister this environment if the API is reachable."""
        for task in self._resends:
            task.cancel()
        if self._env_id is not None:
            try:
                await self.api.disconnect(self._env_id)
            except (ApiAwayError, ApiForgotError) as error:
                logger.info("not disconnected: %s", error.message)
        await self.api.aclose()

    def _require_registration(self) -> Registration:
        assert self.registration is not None, "join() comes first"
        return self.registration

    async def _rejoin(self, known: Registration) -> None:
        """Register again, once for all callers that notice the restart; send the lost queue again."""
        async with self._joining:
            if self.registration is not known:
                return
            logger.warning("the trajectory API at %s has been restarted; registering again", self.api.url)
            await self.join()
            lost, self._queued = list(self._queued), deque()
            if lost:
                logger.warning("%d groups were in its queue; they are sent again", len(lost))
                task = asyncio.create_task(self._resend(lost))
                self._resends.add(task)
                task.add_done_callback(self._resends.discard)

    async def _resend(self, groups: Sequence[Group]) -> None:
        for group in groups:
            await self.send([{**group, "group_overrides": {**(group.get("group_overrides") or {}), "resent": True}}])

    def _forget_consumed(self, in_queue: int, sent_before: int) -> None:
        """Keep groups that may still be in the API's queue: the last `in_queue` at the request, and newer ones."""
        newer = self._sent - sent_before
        while len(self._queued) > in_queue + newer:
            self._queued.popleft()
