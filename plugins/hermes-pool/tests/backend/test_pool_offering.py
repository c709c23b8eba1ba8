"""Offers of a pool's members to a waiting sandbox: members that fail, hang or answer late."""

from __future__ import annotations

import asyncio

import pytest
from offering_members import Backend, Members, cancel_itself, failing, hanging, refusing
from virtual_time import run_in_virtual_time

from hermes_core.contracts.errors import BackendError, NoPythonError, SandboxRefusedError
from hermes_pool import SlotUnavailableError
from hermes_pool.refusals import with_member_name

PHASES = pytest.mark.parametrize("phase", ["creating", "starting"])


def run_scene(scene):
    """Run a scene with a timeout of one day of virtual time, so that a wait without end fails the test."""

    async def scene_within_a_day():
        async with asyncio.timeout(86400):
            await scene()

    run_in_virtual_time(scene_within_a_day())


@pytest.mark.parametrize(("quarantine", "at_most"), [(60, 3), (0, 500)])
def test_a_member_that_fails_is_not_asked_for_a_while_although_all_are_set_apart(quarantine, at_most):
    """It was asked again at once, many thousands of times a second, as long as a sandbox waited."""

    async def scene():
        works, broken = Backend(starting=failing("m1 starts no host")), Backend(creating=failing("m2 is down"))
        pool = Members(works, broken, quarantine=quarantine, acquire_timeout=60, max_failures=1000)
        with pytest.raises(SlotUnavailableError):
            await pool.take()
        assert 1 < len(broken.asked) + 1 <= at_most
        pauses = [later - earlier for earlier, later in zip(broken.asked, broken.asked[1:], strict=False)]
        assert all(pause >= max(0.25, quarantine) - 1e-6 for pause in pauses)
        await pool.queue.aclose()

    run_scene(scene)


def test_a_sandbox_is_not_refused_while_a_member_has_not_answered():
    """Only the members that had answered were considered."""

    async def scene():
        slow = Backend(creating=hanging(20))
        pool = Members(Backend(starting=failing("m1 starts no host")), slow, max_failures=2, acquire_timeout=60)
        assert await pool.take() == "m2"
        assert len(slow.asked) == 1
        await pool.queue.aclose()

    run_scene(scene)


def test_a_sandbox_whose_hosts_have_failed_is_refused_as_soon_as_the_last_member_has_answered():
    async def scene():
        bad = Backend(starting=failing("m1 starts no host"))
        # When it answers, the next start is far in the future, since the pause after a failure is doubled each time.
        late = Backend(creating=failing("m2 is down", after=50))
        pool = Members(bad, late, max_failures=2, acquire_timeout=600)
        began = asyncio.get_running_loop().time()
        with pytest.raises(BackendError, match="no member of the pool can be used") as caught:
            await pool.take()
        assert asyncio.get_running_loop().time() == pytest.approx(began + 50, abs=0.01)
        assert "m1: m1 starts no host" in caught.value.message
        assert "m2: m2 is down" in caught.value.message
        await pool.queue.aclose()

    run_scene(scene)


def test_a_member_that_never_answers_does_not_keep_a_sandbox_waiting_for_hosts_that_fail():
    async def scene():
        bad = Backend(starting=failing("m1 starts no host"))
        pool = Members(bad, Backend(creating=hanging()), max_failures=2, acquire_timeout=6000, start_timeout=50)
        began = asyncio.get_running_loop().time()
        with pytest.raises(BackendError, match="no member of the pool can be used: m1: m1 starts no host"):
            await pool.take()
        assert asyncio.get_running_loop().time() == pytest.approx(began + 50, abs=0.01)
        await pool.queue.aclose()

    run_scene(scene)


def test_failures_of_earlier_sandboxes_do_not_refuse_a_later_one_before_a_start_was_tried_for_it():
    async def scene():
        bad = Backend(starting=failing("the engine restarts"))
        pool = Members(bad, max_failures=1)
        with pytest.raises(BackendError, match="the engine restarts"):
            await pool.take()
        bad.starting = None
        assert await pool.take() == "m1"
        await pool.queue.aclose()

    run_scene(scene)


def test_the_failure_of_one_member_refuses_no_sandbox_even_without_a_quarantine():
    async def scene():
        pool = Members(Backend(creating=failing("m1 is down")), Backend(creating=hanging(3)), quarantine=0)
        assert await pool.take() == "m2"
        await pool.queue.aclose()

    run_scene(scene)


@pytest.mark.parametrize("quarantine", [0, 60])
def test_if_every_member_fails_the_error_has_the_message_of_each(quarantine):
    async def scene():
        first, second = Backend(creating=failing("m1 is down")), Backend(creating=failing("m2 is full", after=3))
        pool = Members(first, second, quarantine=quarantine)
        with pytest.raises(BackendError, match="no member of the pool can be used: m1: m1 is down; m2: m2 is full"):
            await pool.take()

    run_scene(scene)


def test_a_member_that_is_passed_over_is_asked_as_soon_as_no_other_works():
    async def scene():
        first, second = Backend(creating=failing("m1 is down")), Backend()
        pool = Members(first, second, quarantine=600, acquire_timeout=900)
        pool.members[1].fleet.set_apart(BackendError("m2 was down a moment ago"))
        began = asyncio.get_running_loop().time()
        assert await pool.take() == "m2"
        assert second.asked == [began]
        await pool.queue.aclose()

    run_scene(scene)


def test_a_create_that_raises_cancelled_error_by_itself_is_a_failure_of_its_member():
    """It ended the task of the offers, and the waiter got no error."""

    async def scene():
        pool = Members(Backend(creating=cancel_itself), quarantine=0)
        with pytest.raises(
            BackendError, match="m1: `create` of backend 'fake' raised CancelledError without being cancelled"
        ):
            await pool.take()
        pool = Members(Backend(creating=cancel_itself), Backend(creating=hanging(3)))
        assert await pool.take() == "m2"
        await pool.queue.aclose()

    run_scene(scene)


def test_a_create_that_returns_nothing_is_an_error_that_names_its_member():
    """A forgotten `return`: the member was asked again without end."""

    class Forgetful(Backend):
        async def create(self, _spec, _sandbox_id):
            return None

    async def scene():
        with pytest.raises(SandboxRefusedError, match="expected a host from `create` of backend 'fake', got None"):
            await Members(Forgetful()).take()

    run_scene(scene)


def test_a_waiter_without_an_offer_is_refused_after_start_timeout_although_the_queue_moves():
    async def scene():
        hangs, fails = Backend(creating=hanging()), Backend(creating=failing("m2 is down"))
        pool = Members(hangs, fails, acquire_timeout=20, start_timeout=60)
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(pool.take())
        await asyncio.sleep(50)
        hangs.creating = None
        assert await pool.take() == "m1"
        with pytest.raises(SlotUnavailableError, match="no member of pool 'pool' has offered a host within 60 s: m2: "):
            await waiting
        assert asyncio.get_running_loop().time() == pytest.approx(began + 60, abs=1)
        await pool.queue.aclose()

    run_scene(scene)


def test_an_acquire_timeout_names_the_last_failure_of_each_member():
    """It named one failed start, without its member."""

    async def scene():
        first, second = Backend(starting=failing("m1 starts no host")), Backend(creating=failing("m2 is down"))
        pool = Members(first, second, acquire_timeout=60, max_failures=1000)
        with pytest.raises(SlotUnavailableError, match="last failures: m1: m1 starts no host; m2: m2 is down"):
            await pool.take()
        await pool.queue.aclose()

    run_scene(scene)


def test_a_member_whose_create_refuses_a_sandbox_is_asked_once_for_it_and_another_serves_it():
    async def scene():
        first = Backend(creating=refusing("no such image"))
        pool = Members(first, Backend(creating=hanging(30)))
        assert (await pool.take(), len(first.asked)) == ("m2", 1)
        assert not pool.queue.fleets[0].is_apart(asyncio.get_running_loop().time())
        await pool.queue.aclose()

    run_scene(scene)


def test_what_a_member_refuses_for_one_sandbox_is_not_told_to_another_as_the_cause():
    """The error of a sandbox that found every slot in use named the image that another one lacked."""

    async def scene():
        first = Backend()
        pool = Members(first, Backend(), max_hosts=1, slots_per_host=1, acquire_timeout=60)
        (_, seat), (_, other) = await pool.acquire(), await pool.acquire()
        first.creating = refusing("no such image A")
        refused = asyncio.create_task(pool.take())
        await asyncio.sleep(1)
        first.creating = None
        with pytest.raises(SlotUnavailableError, match="was given out or back within 60 s") as caught:
            await pool.take()
        assert "no such image A" not in caught.value.message
        with pytest.raises(SlotUnavailableError, match="last failures: m1: no such image A"):
            await refused
        await seat.release()
        await other.release()
        await pool.queue.aclose()

    run_scene(scene)


class NoGpuError(SandboxRefusedError):
    """A third party's error, whose constructor takes more than a message."""

    def __init__(self, gpu, node):
        super().__init__(f"no {gpu} on {node}", hint="ask for another")


def test_a_final_error_of_any_class_stays_final_and_keeps_its_hint():
    """One that could not be copied by its constructor became a `BackendError`, which is tried again."""
    error = with_member_name(NoGpuError("h100", "n1"), "m1")
    assert (type(error), error.retryable, error.hint) == (NoGpuError, False, "ask for another")
    assert error.message == "member m1 of the pool: no h100 on n1"


def test_a_waiter_for_one_member_gets_the_failures_of_that_member_only():
    """The check at the start of a run listed all members, once for each of them."""

    async def scene():
        pool = Members(Backend(starting=failing("m1 is off")), Backend(starting=failing("m2 is off")), max_failures=2)
        told = await asyncio.gather(pool.acquire_of(0), pool.acquire_of(1), return_exceptions=True)
        why = "has no host of this kind: 2 starts in a row have failed, the last with"
        assert [str(error).partition("\n")[0] for error in told] == [
            f"pool 'm1' {why}: m1 is off",
            f"pool 'm2' {why}: m2 is off",
        ]
        await pool.queue.aclose()

    run_scene(scene)


def test_a_final_error_of_one_member_refuses_no_sandbox_that_another_can_serve():
    """Its final error was raised to every waiter in the line."""

    async def scene():
        pool = Members(Backend(starting=refusing("no such image")), Backend(), max_hosts=1)
        taken = await asyncio.gather(*(pool.acquire() for _ in range(4)))
        assert {member for member, _ in taken} == {"m2"}
        waiting = asyncio.create_task(pool.acquire())
        await asyncio.sleep(50)
        assert not waiting.done()
        await taken[0][1].release()
        for _, seat in [*taken[1:], await waiting]:
            await seat.release()
        await pool.queue.aclose()

    run_scene(scene)


@PHASES
def test_a_member_set_apart_is_asked_at_once_if_the_other_has_refused_the_sandbox_for_good(phase):
    """It was asked after its quarantine, and with a long one the sandbox was refused."""

    async def scene():
        refuser = Backend(**{phase: refusing("no such image")})
        pool = Members(refuser, Backend(), quarantine=600, acquire_timeout=60)
        pool.queue.fleets[1].set_apart(BackendError("a passing failure"))
        began = asyncio.get_running_loop().time()
        kind = await pool.take()
        assert asyncio.get_running_loop().time() - began < 2
        await pool.queue.aclose()
        return kind

    run_scene(scene)


def test_a_sandbox_that_only_one_member_may_serve_is_refused_with_its_final_error():
    async def scene():
        pool = Members(Backend(starting=refusing("no such image")), Backend())
        with pytest.raises(SandboxRefusedError, match=r"^no such image$"):
            await pool.acquire_of(0)
        assert await pool.take() == "m2"
        await pool.queue.aclose()

    run_scene(scene)


@PHASES
def test_a_final_error_of_one_member_and_failed_starts_of_the_other_refuse_a_sandbox_together(phase):
    async def scene():
        pool = Members(Backend(**{phase: refusing("no such image")}), Backend(starting=failing("m2 is off")))
        with pytest.raises(BackendError, match="m1: no such image; m2: m2 is off") as caught:
            await pool.take()
        assert caught.value.retryable
        await pool.queue.aclose()

    run_scene(scene)


@PHASES
@pytest.mark.parametrize("error", [SandboxRefusedError, NoPythonError])
def test_if_every_member_fails_for_good_the_error_is_final_too(error, phase):
    async def scene():
        refusals = [refusing(why, error=error) for why in ("no such image", "too old")]
        pool = Members(*(Backend(**{phase: refusal}) for refusal in refusals))
        with pytest.raises(error, match="no member of the pool can be used: m1: no such image; m2: too old"):
            await pool.take()
        await pool.queue.aclose()

    run_scene(scene)


def test_a_member_that_refused_to_start_a_host_is_tried_again_after_the_quarantine():
    async def scene():
        first = Backend(starting=refusing("no such image"))
        pool = Members(first, Backend(), max_hosts=1, quarantine=60)
        member, seat = await pool.acquire()
        assert member == "m2"
        first.starting = None
        await asyncio.sleep(61)
        taken = await asyncio.gather(*(pool.acquire() for _ in range(5)))
        assert {member for member, _ in taken} == {"m1", "m2"}
        for _, each in [*taken, ("", seat)]:
            await each.release()
        await pool.queue.aclose()

    run_scene(scene)
