"""The offers that the members of a pool make to one sandbox while it waits for its slot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from hermes_core.contracts.errors import BackendError, HermesError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool.backend.members import Member
from hermes_pool.refusals import no_member_error, with_member_name
from hermes_pool.slot_pool.fleet import Fleet
from hermes_pool.slot_pool.host_kinds import Waiter
from hermes_pool.slot_pool.slot_queue import SlotQueue
from hermes_sandbox.backends import SandboxHost, SlotOffer

_TOGETHER: Final = 0.25
"""Seconds to wait for offers before the one with the most room is chosen; later offers are handed in one by one."""
_PAUSE: Final = 0.25
"""Minimum seconds until a member that has failed is asked again: `quarantine` may be 0."""


class Offering:
    """Asks all members for a host that can serve one sandbox, and hands their offers to the queue.

    Args:
        queue: The queue of the pool.
        members: All members of the pool.
        waiter: The waiter that gets the offers.
        spec: The requirements of the sandbox.
        sandbox_id: The id of the sandbox.
        failures: The errors of the members that are not asked any more, by their labels.
    """

    def __init__(
        self,
        queue: SlotQueue,
        members: Sequence[Member],
        waiter: Waiter,
        spec: SandboxSpec,
        sandbox_id: str,
        *,
        failures: Mapping[str, BackendError],
    ) -> None:
        self._queue = queue
        self._members = [member for member in members if member.label not in failures]
        self._waiter = waiter
        self._spec = spec
        self._id = sandbox_id
        self._offers: dict[Fleet, SlotOffer] = {}
        self._is_open = False
        """Whether offers are handed in as soon as they are made."""
        self._unanswered = set(self._members)
        """The members that have neither made an offer nor failed yet."""
        self._failures = waiter.failures
        self._failures.update(failures)
        self._none_is_able = asyncio.Event()
        """Set once every member is set apart: then those that were passed over are asked too."""

    async def run(self) -> None:
        """Hand in offers until every member has made one or refused for good; refuse the waiter if all fail."""
        loop, queue = asyncio.get_running_loop(), self._queue
        now = loop.time()
        self._waiter.is_expecting = True
        # A member that never answers must not keep a waiter waiting for hosts that fail on the other members.
        timer = loop.call_later(queue.options.start_timeout, queue.end_offers, self._waiter)
        asking = {member: asyncio.create_task(self._ask(member)) for member in self._members}
        able = [task for member, task in asking.items() if not self._is_passed_over(member, now)]
        try:
            await asyncio.wait(able, timeout=_TOGETHER)
            self._is_open = True
            self._hand_in()
            await asyncio.gather(*asking.values())
        except Exception as error:  # noqa: BLE001 - the backend's code: whatever it raises, the waiter gets an error
            queue.refuse(self._waiter, error)
        finally:
            timer.cancel()
            for task in asking.values():
                task.cancel()

    async def _ask(self, member: Member) -> None:
        """Get the offer of a member; if it fails for now, ask again when it is no longer set apart."""
        loop, fleet = asyncio.get_running_loop(), member.fleet
        if self._is_passed_over(member, loop.time()):
            await self._wait_out(member)
        while (host := await self._create(member)) is None:
            self._note_answer(member)
            if self._has_refused(member):
                return
            await asyncio.sleep(max(_PAUSE, fleet.apart_until - loop.time()))
        self._failures.pop(member.label, None)
        self._offers[fleet] = self._offer_of(member, host)
        if self._is_open:
            self._hand_in()
        self._note_answer(member)

    async def _create(self, member: Member) -> SandboxHost | None:
        """Return the host that the member creates for the sandbox; None if that failed.

        Raises:
            BackendError: Every member has failed and the waiter has no offer, or the member breaks the contract.
        """
        try:
            host: SandboxHost | None = await member.backend.create(self._spec, self._id)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            failure = BackendError(f"`create` of backend {member.name!r} raised CancelledError without being cancelled")
            failure.__cause__ = error
        except BackendError as error:
            failure = error
        except HermesError as error:
            raise with_member_name(error, member.label) from error
        else:
            if host is None:  # a third-party backend without a return statement
                raise SandboxRefusedError(
                    f"expected a host from `create` of backend {member.name!r}, got None",
                    hint="return a SharedHost from it",
                )
            return host
        self._note_failure(member, failure)
        return None

    def _note_failure(self, member: Member, error: BackendError) -> None:
        if error.retryable:  # if not, the member may work for other sandboxes
            member.fleet.set_apart(error)
        self._failures[member.label] = error
        if self._waiter.line is None and all(other.label in self._failures for other in self._members):
            raise no_member_error(self._failures) from error
        now = asyncio.get_running_loop().time()
        if not any(self._is_able(other, now) for other in self._members):
            self._none_is_able.set()

    def _note_answer(self, member: Member) -> None:
        self._unanswered.discard(member)
        if not self._unanswered:
            self._queue.end_offers(self._waiter)

    async def _wait_out(self, member: Member) -> None:
        """Wait until a member is no longer set apart, or no other can serve the waiter."""
        loop = asyncio.get_running_loop()
        while self._is_passed_over(member, loop.time()):
            # The members' starts change who can, so look again before the time is over.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(member.fleet.apart_until, loop.time() + _PAUSE)):
                    await self._none_is_able.wait()

    def _is_passed_over(self, member: Member, now: float) -> bool:
        return member.fleet.is_apart(now) and any(self._is_able(other, now) for other in self._members)

    def _is_able(self, member: Member, now: float) -> bool:
        kinds = self._waiter.line.kinds if self._waiter.line else ()
        is_refused = any(kind.member == member.fleet.number and now < kind.apart_until for kind in kinds)
        return not is_refused and not self._has_refused(member) and not member.fleet.is_apart(now)

    def _has_refused(self, member: Member) -> bool:
        """Tell whether a member has refused this sandbox for good, as one without its image does."""
        failure = self._failures.get(member.label)
        return failure is not None and not failure.retryable

    def _offer_of(self, member: Member, host: SandboxHost) -> SlotOffer:
        offer = host.offer
        if offer is None:
            raise SandboxRefusedError(
                f"expected a host with an offer from `create` of backend {member.name!r}, got one for a single sandbox",
                hint="return a SharedHost from it wherever `shares` is true",
            )

        async def make_host() -> SandboxHost:
            await member.backend.prepare(self._spec)
            return await offer.make_host()

        return offer._replace(make_host=make_host)

    def _hand_in(self) -> None:
        offers, self._offers = self._offers, {}
        if offers:
            self._queue.offer(self._waiter, offers)
