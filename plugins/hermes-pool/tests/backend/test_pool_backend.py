"""Several backends as one pool: the order of waiters over all of them, and members that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pool_support import Backend

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool import HostStartTimeoutError, SlotUnavailableError
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.backend.pool_backend import PoolBackend
from hermes_testing.watching import eventually


def engine_of(member: Any) -> Any:
    return member.backend.engine


@pytest.fixture
async def pool(root):
    """Make pools over engines of this machine, and require at the end that nothing of them is left."""
    made = []

    def make(members=2, limit=1000, **options):
        def build(kind, name, wanted):
            assert (kind, name) == ("backend", "engine")
            folder = root / wanted["name"]
            folder.mkdir()
            return Backend(folder, {}, limit=limit)

        backends = [{"backend": "engine", "options": {"name": str(n)}} for n in range(members)]
        # A healthy agent on a busy machine may take its time to answer.
        given = PoolBackendOptions(backends=backends, **{"health_timeout": 60, **options})
        backend = PoolBackend(given, build=build)
        backend.lease_dir = root / "leases"
        made.append(backend)
        return backend

    yield make
    for backend in made:
        await backend.aclose()
        assert all(engine_of(member).alive == [] for member in backend.members)
        assert all(member.fleet.used == 0 for member in backend.members)
    assert list((root / "leases").glob("*")) == []


def engines(backend):
    return [member.backend.engine for member in backend.members]


async def work(backend, number, **fields):
    async with await backend.open(SandboxSpec(**fields)) as sandbox:
        await sandbox.write_file("mine", str(number))
        return (await sandbox.exec("cat mine")).output


async def test_each_sandbox_goes_to_the_member_with_the_most_room(pool):
    backend = pool(members=3, max_hosts=1, slots_per_host=2)
    sandboxes = [await backend.open(SandboxSpec()) for _ in range(6)]
    assert [member.fleet.used for member in backend.members] == [2, 2, 2]
    assert sandboxes[0].provenance["backend"] == "pool"
    assert {sandbox.provenance["member"] for sandbox in sandboxes} == {"engine#1", "engine#2", "engine#3"}
    assert (backend.stats().used, backend.stats().free) == (6, 0)
    for sandbox in sandboxes:
        await sandbox.aclose()


async def test_a_member_without_a_host_starts_one_when_it_has_more_room_and_no_sandbox_waits_for_it(pool):
    """Sandboxes are spread over the members, and none waits for a start while a slot is free."""
    backend = pool(max_hosts=1, slots_per_host=4)
    sandboxes = [await backend.open(SandboxSpec())]
    assert [engine.asked for engine in engines(backend)] == [1, 0]
    engines(backend)[1].gate.clear()
    sandboxes.append(await asyncio.wait_for(backend.open(SandboxSpec()), 60))
    assert [member.fleet.used for member in backend.members] == [2, 0]
    engines(backend)[1].gate.set()
    assert await eventually(lambda: backend.stats().hosts["ready"] == 2)
    sandboxes += [await backend.open(SandboxSpec()) for _ in range(4)]
    assert [member.fleet.used for member in backend.members] == [3, 3]
    for sandbox in sandboxes:
        await sandbox.aclose()


async def test_a_sandbox_has_the_process_limit_of_its_member(pool):
    backend = pool(members=1, max_hosts=1, slots_per_host=2)
    backend.members[0].backend.pids = 70
    async with await backend.open(SandboxSpec()) as sandbox:
        found = sandbox.provenance["limits"]["pids"]
    if found.startswith("none"):
        pytest.skip(f"nothing bounds processes here: {found}")
    assert found.split()[0].strip(",") == "70"


async def test_sixteen_trajectories_finish_on_four_slots_of_two_members(pool):
    """hermes-agent's defect, over several engines: those that held slots waited for those that waited for slots."""
    backend = pool(max_hosts=1, slots_per_host=2)
    answers = await asyncio.wait_for(asyncio.gather(*(work(backend, n) for n in range(16))), 60)
    assert answers == [str(n) for n in range(16)]
    assert backend.stats().waits.count == 16
    assert backend.stats().waits.longest > 0


async def test_the_longest_waiter_gets_the_next_free_slot_of_any_member(pool):
    """One slot is given back at a time, so that the next sandbox that opens is that of the next waiter."""
    backend = pool(max_hosts=1, slots_per_host=2)
    held = [await backend.open(SandboxSpec()) for _ in range(4)]
    assert [member.fleet.used for member in backend.members] == [2, 2]
    waiting = []
    for number in range(12):
        waiting.append(asyncio.create_task(backend.open(SandboxSpec())))
        assert await eventually(lambda number=number: backend.stats().waiting == number + 1)
    order, pending = [], set(waiting)
    while pending:
        await held.pop(0).aclose()
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        order += [waiting.index(task) for task in done]
        held += [task.result() for task in done]
    assert order == list(range(12))
    for sandbox in held:
        await sandbox.aclose()


async def test_a_free_slot_serves_a_waiter_where_backends_allow_fewer_slots_than_the_pool(pool):
    """Until the first sandbox was open, the options' number was used, and too many sandboxes were sent there."""
    backend = pool(limit=1, max_hosts=1, slots_per_host=16)
    assert backend.stats().capacity is None
    opening = [asyncio.create_task(backend.open(SandboxSpec())) for _ in range(3)]
    assert await eventually(lambda: sum(task.done() for task in opening) == 2)
    done, (last,) = [task for task in opening if task.done()], [task for task in opening if not task.done()]
    assert backend.stats().capacity == 2
    assert [member.fleet.used for member in backend.members] == [1, 1]
    # A free slot of either member serves the waiter.
    freed = next(task.result() for task in done if task.result().provenance["member"] == "engine#2")
    await freed.aclose()
    got = await asyncio.wait_for(last, 60)
    assert got.provenance["member"] == "engine#2"
    for sandbox in [task.result() for task in done if task.result() is not freed] + [got]:
        await sandbox.aclose()


async def test_waiters_for_a_member_whose_hosts_do_not_start_are_served_by_another(pool):
    """A sandbox that was sent there waited until its timeout, and so did the next one."""
    backend = pool(max_hosts=1, slots_per_host=4, acquire_timeout=60)
    engines(backend)[0].gate.clear()
    opening = [asyncio.create_task(backend.open(SandboxSpec())) for _ in range(4)]
    assert await eventually(lambda: engines(backend)[0].starting == 1)
    assert engines(backend)[1].asked == 0
    backend.options.acquire_timeout = 0.2  # half of which has passed already
    sandboxes = await asyncio.wait_for(asyncio.gather(*opening), 60)
    assert {sandbox.provenance["member"] for sandbox in sandboxes} == {"engine#2"}
    assert "no host of pool 'engine#1' has started" in str(backend.members[0].fleet.trouble)
    for sandbox in sandboxes:
        await sandbox.aclose()


async def hang(_spec):
    await asyncio.Event().wait()


async def test_waiters_for_a_member_that_does_not_get_ready_are_served_by_another(pool, monkeypatch):
    backend = pool(max_hosts=1, slots_per_host=2, acquire_timeout=600)
    monkeypatch.setattr(backend.members[0].backend, "prepare", hang)
    opening = [asyncio.create_task(backend.open(SandboxSpec())) for _ in range(2)]
    assert await eventually(lambda: backend.members[0].fleet.has_coming)
    backend.options.acquire_timeout = 0.2  # half of which has passed already
    sandboxes = await asyncio.wait_for(asyncio.gather(*opening), 60)
    assert {sandbox.provenance["member"] for sandbox in sandboxes} == {"engine#2"}
    for sandbox in sandboxes:
        await sandbox.aclose()


async def test_an_only_member_that_does_not_get_ready_fails_after_start_timeout(pool, monkeypatch):
    backend = pool(members=1, start_timeout=0.2, max_failures=1)
    monkeypatch.setattr(backend.members[0].backend, "prepare", hang)
    with pytest.raises(HostStartTimeoutError, match=r"a host of pool 'engine#1' was not started within 0\.\d+ s"):
        await backend.open(SandboxSpec())
    assert (backend.members[0].fleet.used, backend.stats().waiting) == (0, 0)


async def have_host_each(backend):
    """Start a host of every member, and leave no sandbox open."""
    for sandbox in [await backend.open(SandboxSpec()) for _ in backend.members]:
        await sandbox.aclose()


async def test_a_sandbox_whose_member_does_not_get_ready_again_goes_to_another(pool, monkeypatch):
    """A sandbox held its slot while it waited for a new allocation, for as long as the cluster's queue took."""
    backend = pool(max_hosts=1, slots_per_host=1)
    await have_host_each(backend)

    async def wait_for_allocation(_spec):
        backend.options.start_timeout = 600  # for hosts that may still be started
        await asyncio.Event().wait()

    monkeypatch.setattr(backend.members[0].backend, "prepare", wait_for_allocation)
    backend.options.start_timeout = 1
    async with await backend.open(SandboxSpec()) as sandbox:
        assert sandbox.provenance["member"] == "engine#2"
    assert str(backend.members[0].fleet.trouble).startswith("member 'engine#1' of the pool was not ready within 1 s")
    assert backend.members[0].fleet.used == 0


async def test_a_sandbox_whose_member_refuses_it_for_good_goes_to_another(pool, monkeypatch):
    backend = pool(max_hosts=1, slots_per_host=1)
    await have_host_each(backend)

    async def refuse(_spec):
        raise SandboxRefusedError("no such partition")

    monkeypatch.setattr(backend.members[0].backend, "prepare", refuse)
    async with await backend.open(SandboxSpec()) as sandbox:
        assert sandbox.provenance["member"] == "engine#2"


async def test_if_no_member_gets_ready_again_the_error_names_the_failure_of_each(pool, monkeypatch):
    backend = pool(max_hosts=1, slots_per_host=1)
    await have_host_each(backend)
    for number, member in enumerate(backend.members):

        async def refuse(_spec, number=number):
            raise BackendError(f"allocation {number} has ended")

        monkeypatch.setattr(member.backend, "prepare", refuse)
    told = "engine#1: allocation 0 has ended; engine#2: allocation 1 has ended"
    with pytest.raises(BackendError, match=f"no member of the pool can be used: {told}"):
        await backend.open(SandboxSpec())
    assert [member.fleet.used for member in backend.members] == [0, 0]


async def test_a_host_in_which_a_slot_cannot_be_opened_gets_no_further_sandbox(pool, monkeypatch):
    """Its slots were free again at once, so it always had the most room, and got every sandbox."""
    backend = pool(max_hosts=1, slots_per_host=4, quarantine=300)
    await have_host_each(backend)
    offer_slots = backend.members[0].backend.create

    async def offer_slots_on_full_disk(spec, sandbox_id):
        host = await offer_slots(spec, sandbox_id)
        describe = host._describe
        host._describe = lambda host, number: {**describe(host, number), "workspace": "/dev/null/full"}
        return host

    monkeypatch.setattr(backend.members[0].backend, "create", offer_slots_on_full_disk)
    with pytest.raises(BackendError) as caught:
        await backend.open(SandboxSpec())
    assert caught.value.retryable
    for number in range(3):
        assert await work(backend, number) == str(number)
    assert backend.stats().failed == 1
    assert backend.stats().last_failure == caught.value.message
    assert await eventually(lambda: engines(backend)[0].alive == [])


async def test_a_trajectory_gets_its_second_sandbox_on_a_full_pool(pool):
    backend = pool(max_hosts=1, slots_per_host=1)

    async def verify_in_sandbox(number):
        async with await backend.open(SandboxSpec(rollout_id=f"r{number}")):
            return await work(backend, number, rollout_id=f"r{number}")

    answers = await asyncio.wait_for(asyncio.gather(*(verify_in_sandbox(n) for n in range(6))), 60)
    assert answers == [str(n) for n in range(6)]


async def test_an_acquire_timeout_has_the_statistics_of_all_members(pool):
    backend = pool(max_hosts=1, slots_per_host=1)
    sandboxes = [await backend.open(SandboxSpec()) for _ in range(2)]
    backend.options.acquire_timeout = 0.1
    with pytest.raises(SlotUnavailableError, match="1 waiting, 0 free and 2 in use of 2 slots, 2 hosts of at most 2"):
        await backend.open(SandboxSpec())
    for sandbox in sandboxes:
        await sandbox.aclose()


async def test_no_sandbox_waits_for_a_quarantined_host_while_another_member_has_room(pool):
    backend = pool(max_hosts=1, slots_per_host=4, health_interval=0.05, quarantine=300, acquire_timeout=60)
    first, second = [await backend.open(SandboxSpec()) for _ in range(2)]
    await second.aclose()
    (host,) = engines(backend)[0].hosts
    host.complaint = "the disk is full"
    assert await eventually(lambda: backend.stats().hosts["quarantined"] == 1)
    others = [await backend.open(SandboxSpec()) for _ in range(4)]
    assert {other.provenance["member"] for other in others} == {"engine#2"}
    for sandbox in (first, *others):
        await sandbox.aclose()


async def test_a_waiter_gets_a_slot_when_a_quarantined_host_is_healthy_again(pool):
    backend = pool(members=1, max_hosts=1, slots_per_host=2, health_interval=0.05, quarantine=300)
    first = await backend.open(SandboxSpec())
    (host,) = engines(backend)[0].hosts
    host.complaint = "the disk is full"
    assert await eventually(lambda: backend.stats().hosts["quarantined"] == 1)
    opening = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    host.complaint = None
    backend.options.quarantine = 0.05
    await (await asyncio.wait_for(opening, 60)).aclose()
    await first.aclose()


async def test_a_cancelled_waiter_leaves_the_queue(pool):
    backend = pool(members=1, max_hosts=1, slots_per_host=1)
    sandbox = await backend.open(SandboxSpec())
    opening = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert backend.stats().waiting == 0
    await sandbox.aclose()
    assert await work(backend, 3) == "3"


async def test_closing_refuses_the_waiters_before_slots_are_given_back(pool):
    """They got the slots that closing gave back, and new hosts were started for them."""
    backend = pool(members=1, max_hosts=1, slots_per_host=1)
    await backend.open(SandboxSpec())
    opening = asyncio.create_task(backend.open(SandboxSpec()))
    assert await eventually(lambda: backend.stats().waiting == 1)
    await backend.aclose()
    with pytest.raises(BackendError, match="pool 'pool' is being closed"):
        await opening
    assert engines(backend)[0].alive == []
    await (await backend.open(SandboxSpec())).aclose()


async def test_closing_reports_what_is_left_on_every_member(pool):
    """Only the error of the first member was raised."""
    backend = pool(max_hosts=1, slots_per_host=1)
    sandboxes = [await backend.open(SandboxSpec()) for _ in range(2)]
    for number, engine in enumerate(engines(backend)):
        engine.hosts[0].stuck = f"engine {number} does not answer"
    for sandbox in sandboxes:
        await sandbox.aclose()
    with pytest.raises(BackendError) as caught:
        await backend.aclose()
    assert "host of pool 'engine#1' could not be ended: engine 0 does not answer" in caught.value.message
    assert "host of pool 'engine#2' could not be ended: engine 1 does not answer" in caught.value.message


async def test_a_sandbox_that_cannot_be_made_keeps_no_slot(pool, monkeypatch):
    backend = pool(members=1, max_hosts=1, slots_per_host=1)

    async def refuse(_spec, _sandbox_id):
        raise SandboxRefusedError("no such image")

    with monkeypatch.context() as patch:
        patch.setattr(backend.members[0].backend, "create", refuse)
        for _ in range(3):
            with pytest.raises(SandboxRefusedError, match="no such image"):
                await backend.open(SandboxSpec())
    assert backend.members[0].fleet.used == 0
    assert await work(backend, 1) == "1"


async def test_a_member_that_cannot_be_reached_is_set_apart_and_the_others_go_on(pool):
    backend = pool(max_hosts=2, slots_per_host=4)
    engines(backend)[0].failing = lambda _: BackendError("connection refused")
    answers = await asyncio.wait_for(asyncio.gather(*(work(backend, n) for n in range(8))), 60)
    assert answers == [str(n) for n in range(8)]
    assert "connection refused" in str(backend.members[0].fleet.trouble)
    tried = engines(backend)[0].asked
    assert await work(backend, 9) == "9"
    assert engines(backend)[0].asked == tried


async def test_a_member_that_was_set_apart_is_tried_again(pool):
    backend = pool(max_hosts=1, slots_per_host=1, quarantine=0.1)
    engines(backend)[0].failing = lambda number: BackendError("connection refused") if number == 1 else None
    first = await backend.open(SandboxSpec())
    second = await asyncio.wait_for(backend.open(SandboxSpec()), 60)
    assert {first.provenance["member"], second.provenance["member"]} == {"engine#1", "engine#2"}
    await first.aclose()
    await second.aclose()


async def test_if_no_member_works_the_error_names_each(pool):
    backend = pool(max_hosts=1)
    for number, engine in enumerate(engines(backend)):
        engine.failing = lambda _, number=number: BackendError(f"engine {number} is down")
    with pytest.raises(BackendError) as caught:
        await asyncio.wait_for(backend.open(SandboxSpec()), 60)
    assert "engine#1: " in caught.value.message
    assert "engine 0 is down" in caught.value.message
    assert "engine#2: " in caught.value.message
    assert "engine 1 is down" in caught.value.message


async def test_check_tries_every_member_and_passes_without_one_that_fails(pool, monkeypatch):
    backend = pool()
    seen = []

    async def note_reach(_spec):
        seen.append("reached")

    async def unreachable(_spec):
        raise BackendError("no route to host")

    monkeypatch.setattr(backend.members[0].backend, "check", unreachable)
    monkeypatch.setattr(backend.members[1].backend, "check", note_reach)
    await backend.check(SandboxSpec())
    assert seen == ["reached"]
    assert str(backend.members[0].fleet.trouble) == "no route to host"
    monkeypatch.setattr(backend.members[1].backend, "check", unreachable)
    with pytest.raises(BackendError, match="no member of the pool can be used: engine#1: no route to host; engine#2"):
        await backend.check(SandboxSpec())


async def test_all_members_are_swept_although_one_cannot_be_reached(pool, monkeypatch):
    backend, swept = pool(), []

    async def refuse(*, remove):
        raise BackendError("the engine is off")

    async def sweep(*, remove):
        swept.append(remove)
        return ["s1"]

    monkeypatch.setattr(backend.members[0].backend, "sweep", refuse)
    monkeypatch.setattr(backend.members[1].backend, "sweep", sweep)
    with pytest.raises(BackendError, match="engine#1: the engine is off"):
        await backend.sweep()
    assert swept == [True]


async def test_a_lost_member_fails_its_own_sandboxes_only(pool):
    backend = pool(max_hosts=1, slots_per_host=1, health_interval=0.1)
    sandboxes = [await backend.open(SandboxSpec()) for _ in range(2)]
    waiting = asyncio.create_task(work(backend, 7))
    engines(backend)[0].hosts[0].kill()
    lost = 0
    for sandbox in sandboxes:
        try:
            assert (await sandbox.exec("echo fine")).output == "fine\n"
        except SandboxLostError:
            lost += 1
        await sandbox.aclose()
    assert lost == 1
    assert await asyncio.wait_for(waiting, 60) == "7"
