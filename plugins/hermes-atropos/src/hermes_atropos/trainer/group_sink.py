"""Deliver scored groups to a file or the trajectory API, or reject them with a reason."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.groups.group_runner import rollout_ids
from hermes_atropos.groups.grouping import UNTRAINABLE, Group, Limits, parts, refusal
from hermes_atropos.groups.item_run import ITEM
from hermes_atropos.groups.ledger import End, Ledger
from hermes_atropos.trainer import transcript as display
from hermes_atropos.trainer.api import ApiRefusedError
from hermes_atropos.trainer.journal import Journal, unused_path
from hermes_core.contracts.errors import HermesError, UserError
from hermes_core.contracts.model import encode

logger = logging.getLogger(__name__)

_TOO_MANY: Final = 8

Send = Callable[[Sequence[Group]], Awaitable[str]]
"""Sends groups to the trajectory API; returns its status, raises if it refuses them."""


class GroupSink:
    """Writes and sends groups, and closes their rollouts in the ledger."""

    def __init__(self, config: HermesAgentEnvConfig, ledger: Ledger) -> None:
        self._config = config
        self._ledger = ledger
        self._journal: Journal | None = None
        self._untrainable = 0
        self._delivered: dict[str, str] = {}
        """Rollouts of delivered groups that the ledger has not recorded yet, with the reason it will record."""
        self._ledger_error: HermesError | None = None
        self.path: Path | None = None
        self.send: Send | None = None
        self.outside: Callable[[Group], Awaitable[bool]] | None = None
        """In `process`: accepts a group delivered by a task without an item."""
        if config.data_path_to_save_groups is not None:
            self.path = Path(config.data_path_to_save_groups)

    def refusal(self, group: Group, *, for_trainer: bool, max_token_len: int, is_recorded: bool = True) -> str | None:
        """Return why a group cannot be delivered, or None; see `Limits`."""
        limits = Limits(
            group_size=self._config.group_size,
            max_token_len=max_token_len,
            distinct_scores=self._config.ensure_scores_are_not_same,
            for_trainer=for_trainer,
            is_recorded=is_recorded,
        )
        return refusal(group, limits)

    def reject(self, group: Group, reason: str) -> None:
        """Record a rejected group; raise `UserError` if all recent groups were rejected as untrainable."""
        logger.warning("group %s is rejected: %s", (group.get("group_overrides") or {}).get("group_id"), reason)
        self.settle(group, End.REJECTED, reason)
        self._untrainable = self._untrainable + 1 if reason.startswith(UNTRAINABLE) else 0
        if self._untrainable >= _TOO_MANY:
            raise UserError(
                f"{self._untrainable} groups in a row cannot be sent: {reason}",
                hint="a trainer needs token ids and logprobs: see server_type, and the server's own options",
            )

    async def deliver(self, group: Group, *, to_trainer: bool) -> bool:
        """Write a group to the file, if any, and send it with `to_trainer`; return False if it is refused.

        An exception means that the group was not delivered, so the caller may deliver it again. If the ledger fails
        after the delivery, this logs it and returns True; the next call raises the ledger's error and delivers nothing.
        """
        if self.outside is not None and ITEM.get() is None:
            return await self.outside(group)
        if self._ledger_error is not None:
            error, self._ledger_error = self._ledger_error, None
            raise error
        if not self._config.include_messages:
            group = {**group, "messages": None}
        self._untrainable = 0
        reason = ""
        if self.path is not None:
            self._write(group)
            reason = f"written to {self.path}"
        if not to_trainer:
            self._settle_delivered(group, reason or "not stored: data_path_to_save_groups is not set")
            return True
        if self.send is None:
            raise HermesError("expected a trajectory API to send to, got none: this environment is not served")
        try:
            said = await self.send(parts(group, self._config.group_size))
        except asyncio.CancelledError as error:
            self.settle(group, End.CANCELLED, str(error) or "cancelled while sending")
            raise
        except ApiRefusedError as error:
            logger.warning("%s", error.message)
            self.settle(group, End.REJECTED, error.message)
            return False
        except HermesError as error:
            self.settle(group, End.ERRORED, error.message)
            raise
        self._settle_delivered(group, said)
        return True

    def _settle_delivered(self, group: Group, reason: str) -> None:
        """Close the rollouts of a delivered group; if the ledger fails, the next attempt to close them records it."""
        rollouts = self._lines(group)
        self._delivered |= dict.fromkeys(rollouts, reason)
        try:
            self._close(rollouts, End.SENT, reason)
        except HermesError as error:
            self._ledger_error = error
            said = "a group was delivered (%s), which the ledger does not record yet: %s"
            logger.warning(said, reason, error.message)

    def settle_open(self, group: Mapping[str, Any], end: End, reason: str) -> None:
        """Close the open rollouts of a group; those of a delivered group end as sent, whatever `end` says."""
        self._close(rollout_ids(group), end, reason)

    def settle(self, group: Mapping[str, Any], end: End, reason: str) -> None:
        """Close the rollouts of a group; sequences without a rollout id get one line each."""
        self._close(self._lines(group), end, reason)

    def _lines(self, group: Mapping[str, Any]) -> Sequence[str]:
        """Return the ids of a group's lines in the ledger, and begin lines for sequences without a rollout id."""
        if rollouts := rollout_ids(group):
            return rollouts
        group_id = f"gr_{uuid.uuid4().hex[:12]}"
        rollouts = [f"{group_id}-{index}" for index in range(len(group.get("tokens") or ()))]
        for rollout in rollouts:
            self._ledger.begin(rollout, group_id=group_id)
        return rollouts

    def _close(self, rollouts: Iterable[str], end: End, reason: str) -> None:
        for rollout in rollouts:
            if self._ledger.is_open(rollout):
                said = self._delivered.get(rollout)
                self._ledger.close(rollout, end if said is None else End.SENT, reason if said is None else said)
            self._delivered.pop(rollout, None)

    async def aclose(self) -> None:
        """Close the rollouts of delivered groups in the ledger, write pending groups and the page beside the file."""
        try:
            self._close(list(self._delivered), End.SENT, "")
        finally:
            await self._close_file()

    async def _close_file(self) -> None:
        if self._journal is None or self.path is None:
            return
        journal, self._journal = self._journal, None
        await journal.aclose()
        await asyncio.to_thread(display.write_page, self.path, self.path.with_suffix(".html"))

    def _write(self, group: Group) -> None:
        item_run = ITEM.get()
        if item_run is not None:
            item_run.groups.append(encode(group) + b"\n")
            return
        if self._journal is None:
            assert self.path is not None
            self.lead_to(unused_path(self.path))
            self._journal = Journal(self.path)
        self._journal.append(group)

    def lead_to(self, path: Path) -> None:
        """Write to this file from now on, and set it in the config."""
        self.path = path
        self._config.data_path_to_save_groups = str(path)
