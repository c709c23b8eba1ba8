"""Run one item from the dataset to its delivery, for `process` and `serve`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from hermes_atropos.environment import Environment
from hermes_atropos.groups.item_run import ITEM
from hermes_atropos.groups.ledger import End
from hermes_core.contracts.errors import HermesError

logger = logging.getLogger(__name__)


async def run_and_deliver(env: Environment, item: Any, *, to_trainer: bool) -> bool:
    """Run an item's group and deliver it; return whether anything was delivered.

    An exception of the author's code fails only this group. Cancellation and errors that would fail every group are
    raised.
    """
    item_run = ITEM.get()
    try:
        collected, backlog = await env.collected_group(item)
    except Exception as error:  # noqa: BLE001 - the boundary to an environment's own code
        _tell(error, "collect_trajectories")
        return False
    (env.backlog if item_run is None else item_run.backlog).extend(backlog)
    if not collected:
        if item_run is not None:
            item_run.end_empty()
        return False
    sent = env.items_sent_this_step, env.groups_written
    try:
        await _deliver(env, collected, item, to_trainer=to_trainer)
    except asyncio.CancelledError as error:
        _settle(env, collected, End.CANCELLED, str(error) or "cancelled")
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to an environment's own code
        _settle(env, collected, End.ERRORED, f"{type(error).__name__}: {error}")
        _tell(error, "the code after collect_trajectories")
        return False
    return (env.items_sent_this_step, env.groups_written) != sent


async def _deliver(env: Environment, collected: Any, item: Any, *, to_trainer: bool) -> None:
    groups = await env.postprocess_histories(collected)
    if not groups:
        _settle(env, collected, End.REJECTED, "postprocess_histories removed everything")
        return
    await env.handle_send_to_api(groups, item, do_send_to_api=to_trainer, abort_on_any_max_length_exceeded=to_trainer)
    _settle(env, collected, End.REJECTED, "postprocess_histories removed it")


def _settle(env: Environment, collected: Any, end: End, reason: str) -> None:
    """Close the open rollouts of a group; delivered or rejected ones are already closed."""
    groups = collected if isinstance(collected, list) else [collected]
    for group in groups:
        if isinstance(group, Mapping):
            env.outlet.settle_open(group, end, reason)


def _tell(error: Exception, where: str) -> None:
    if isinstance(error, HermesError) and error.fatal:
        raise error
    item_run = ITEM.get()
    if item_run is not None:
        item_run.end_with_error(error)
    logger.error("a group failed in %s and is dropped: %s: %s", where, type(error).__name__, error)
