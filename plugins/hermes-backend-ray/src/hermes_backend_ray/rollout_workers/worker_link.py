"""The run's link to one worker: its rollouts, its messages, and its loss."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ray.exceptions import RayError

from hermes_backend_ray.rollout_workers.messages import News, key_of, pack, rebuilt, unpack
from hermes_core.cancellation import run_uncancelled
from hermes_core.contracts.errors import EngineLostError, TaskError

if TYPE_CHECKING:
    from hermes_backend_ray.rollout_workers.engine_options import EngineOptions
    from hermes_core.contracts.engine import EngineRun
    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.rollout import RolloutOutcome
    from hermes_core.rollout import RolloutSpec

_POLL = 5.0
"""Seconds after which an idle worker sends an empty reply as a sign of life."""
_HOW_TO_CLEAN_UP: Final = "hermes-core sandboxes gc on that node, when it is back, removes what is left there"


class WorkerLink:
    """The link to one worker, until the worker is lost or closed. `taken` of its `slots` are assigned to rollouts."""

    def __init__(
        self, actor: Any, place: Mapping[str, Any], *, slots: int, run: EngineRun, options: EngineOptions
    ) -> None:
        self.actor = actor
        self.place = dict(place)
        self.slots = slots
        self.taken = 0
        self.rollouts = 0
        self.unconfirmed = 0
        self.loss: str | None = None
        self.notes: list[str] = []
        self._run = run
        self._options = options
        self._pending: dict[str, asyncio.Future[News]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._on_loss: Callable[[WorkerLink], None] | None = None

    @property
    def free(self) -> int:
        """How many more rollouts it can take."""
        return self.slots - self.taken if self.loss is None else 0

    def listen(self, on_loss: Callable[[WorkerLink], None]) -> None:
        """Start to read the worker's messages; call `on_loss` once if the worker is lost."""
        self._on_loss = on_loss
        self._listening = asyncio.create_task(self._listen())

    async def run_rollout(self, rollout: RolloutSpec) -> RolloutOutcome:
        """Run an attempt on the worker; raise `EngineLostError` if the worker is lost meanwhile."""
        key = key_of(rollout.rollout_id, rollout.attempt)
        payload = self._pack(rollout)
        future: asyncio.Future[News] = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        if self.loss is not None:
            self._fail(future)
        try:
            await self._send(self.actor.begin.remote(key, payload))
            kind, _, content = await asyncio.shield(future)
        except asyncio.CancelledError:
            await run_uncancelled(self._cancel(key, future))
            raise
        finally:
            self._pending.pop(key, None)
        return self._result(kind, content)

    async def close(self) -> HermesError | None:
        """Close the worker and end its process; return an error if something may be left on its node."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        try:
            return await self._close_worker() if self.loss is None else None
        finally:
            self.kill()

    async def _close_worker(self) -> HermesError | None:
        try:
            async with asyncio.timeout(self._options.cancel_timeout):
                is_well, value = await self.actor.close.remote()
        except (RayError, TimeoutError) as error:
            return EngineLostError(f"{self._name()} was lost as it ended: {_reason(error)}", hint=_HOW_TO_CLEAN_UP)
        return None if is_well else rebuilt(value, self._name())

    def lose(self, reason: str) -> None:
        """Mark the worker as lost: its rollouts fail, and later messages are ignored."""
        if self.loss is not None:
            return
        self.loss = reason
        for future in self._pending.values():
            self._fail(future)
        self.kill()
        if self._on_loss is not None:
            self._on_loss(self)

    def kill(self) -> None:
        """End the worker's process."""
        import ray

        # Without a connection, Ray would start a new local cluster for the kill.
        if ray.is_initialized():
            with contextlib.suppress(RayError, ValueError):
                ray.kill(self.actor, no_restart=True)

    def _pack(self, rollout: RolloutSpec) -> bytes:
        placed = dataclasses.replace(rollout, provenance={**rollout.provenance, "engine": self.place})
        try:
            return pack(placed)
        except Exception as error:  # pickling runs code of arbitrary objects
            text = f"task {rollout.task.id!r} cannot be sent to a worker: {type(error).__name__}: {error}"
            raise TaskError(text) from error

    async def _send(self, answer: Awaitable[Any]) -> None:
        try:
            # Not `wait_for`: until Python 3.12 it swallows a cancellation that comes together with the answer.
            async with asyncio.timeout(self._options.lost_after):
                await answer
        except (RayError, TimeoutError) as error:
            self.lose(_reason(error))

    async def _cancel(self, key: str, future: asyncio.Future[News]) -> None:
        if not future.done():
            await self._send(self.actor.cancel.remote(key))
            await asyncio.wait({future}, timeout=self._options.cancel_timeout)
        if not future.done() or future.exception() is not None:
            self.unconfirmed += 1

    def _result(self, kind: str, content: Any) -> RolloutOutcome:
        if kind == "raised":
            raise rebuilt(content, self._name())
        if kind == "cancelled":
            raise self._loss_error("it ended the rollout by itself")
        self.rollouts += 1
        try:
            outcome: RolloutOutcome = unpack(content)
        except Exception as error:  # unpickling runs code of arbitrary objects
            raise self._loss_error(f"its reply cannot be read: {type(error).__name__}: {error}") from error
        return outcome

    async def _listen(self) -> None:
        try:
            while self.loss is None:
                async with asyncio.timeout(_POLL + self._options.lost_after):
                    news = await self.actor.news.remote(_POLL)
                for item in news:
                    self._hear(*item)
        except (RayError, TimeoutError) as error:
            self.lose(_reason(error))
        except Exception as error:  # noqa: BLE001 - after any error nothing reads the worker's messages any more
            self.lose(f"its messages cannot be read: {type(error).__name__}: {error}")

    def _hear(self, kind: str, whose: str, content: Any) -> None:
        if kind == "turn":
            self._run.on_turn(whose)
        elif kind == "event":
            self._announce(whose, content)
        elif kind == "note":
            self.notes.append(f"{self._name()}: {whose}: {content}")
        else:
            self._settle(kind, whose, content)

    def _announce(self, hook: str, content: bytes) -> None:
        try:
            event = unpack(content)
        except Exception as error:  # noqa: BLE001 - unpickling runs code of arbitrary objects
            self.notes.append(f"{self._name()}: {hook}: an event could not be read: {type(error).__name__}: {error}")
        else:
            self._run.registry.fire(hook, event)

    def _settle(self, kind: Any, key: str, content: Any) -> None:
        future = self._pending.get(key)
        if future is None or future.done():
            self.notes.append(f"{self._name()}: a late or repeated reply about {key} was discarded")
        else:
            future.set_result((kind, key, content))

    def _fail(self, future: asyncio.Future[News]) -> None:
        if not future.done():
            future.set_exception(self._loss_error(self.loss or ""))

    def _loss_error(self, reason: str) -> EngineLostError:
        return EngineLostError(f"{self._name()} was lost: {reason}", place=self.place)

    def _name(self) -> str:
        return f"worker {self.place['worker']} on node {self.place['node'][:12]}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return " ".join(str(error).split())[:300] or type(error).__name__
