"""Real bubblewrap sandboxes with one behaviour of separation changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

from dataclasses import replace

from backend_wrapping import Backend, Local, Passing

from hermes_core.contracts.errors import SandboxLostError
from hermes_testing.suites.backend.base import BackendBase
from hermes_testing.suites.backend.isolation import Isolation


class Confined(Local):
    sandbox_fields = {"isolation": "bwrap"}  # noqa: RUF012 - as an author writes it


class _LeavesTheNetworkOn(Backend):
    async def open(self, spec):
        if spec.network != "none":
            return await super().open(spec)
        return _SaysNone(await self.inner.open(replace(spec, network="full")))


class _SaysNone(Passing):
    @property
    def provenance(self):
        return {**self.inner.provenance, "network": "none"}


class TestNoNetworkIsANetwork(Confined, Isolation):
    backend_class = _LeavesTheNetworkOn
    caught_by = frozenset({"test_no_network_is_none", "test_no_socket_leads_past_the_network_namespace"})


class _LetsEverythingThrough(Backend):
    async def open(self, spec):
        spec = replace(spec, network="full", allow_hosts=()) if spec.network == "allowlist" else spec
        return await super().open(spec)


class TestAnAllowlistIsNone(Confined, Isolation):
    backend_class = _LetsEverythingThrough
    caught_by = frozenset(
        {"test_an_allowlist_reaches_what_it_names", "test_no_socket_leads_past_the_network_namespace"}
    )


class _ForgetsItsLimits(Backend):
    async def open(self, spec):
        return await super().open(replace(spec, memory_mb=None, pids=None))


class TestForgetsItsLimits(Confined, Isolation):
    """Only the tests limit its crowd and its memory."""

    backend_class = _ForgetsItsLimits
    caught_by = frozenset(
        {
            "test_a_command_that_takes_too_much_memory_dies_alone",
            "test_a_sandbox_that_nobody_bounded_says_what_bounds_its_processes",
            "test_processes_without_end_stay_in_their_limit",
        }
    )


class _SaysNothingOfItsProcesses(Passing):
    @property
    def provenance(self):
        limits = self.inner.provenance["limits"]
        return {**self.inner.provenance, "limits": {name: how for name, how in limits.items() if name != "pids"}}


class TestSaysNothingOfItsProcesses(Confined, Isolation):
    sandbox_class = _SaysNothingOfItsProcesses
    caught_by = frozenset({"test_a_sandbox_that_nobody_bounded_says_what_bounds_its_processes"})


class _SaysWhoBoundsThemFirst(Passing):
    @property
    def provenance(self):
        found = self.inner.provenance
        return {**found, "limits": {**found["limits"], "pids": f"by the kernel: {found['limits']['pids']}"}}


class TestSaysWhoBoundsProcessesBeforeHowMany(Confined, Isolation):
    sandbox_class = _SaysWhoBoundsThemFirst
    caught_by = frozenset({"test_a_sandbox_that_nobody_bounded_says_what_bounds_its_processes"})


class _SaysTheSameOfEachTask(Passing):
    @property
    def provenance(self):
        found = self.inner.provenance
        return {**found, "limits": {**found["limits"], "pids": "1024, by the kernel"}}


class TestSaysTheSameOfEachTask(Confined, Isolation):
    sandbox_class = _SaysTheSameOfEachTask
    caught_by = frozenset({"test_a_sandbox_that_nobody_bounded_says_what_bounds_its_processes"})


class _FallsBackToTheHost(Backend):
    async def open(self, spec):
        return await super().open(replace(spec, isolation="none", network="full", allow_hosts=(), disk_mb=None))


class TestFallsBackToTheHost(Confined, Isolation):
    """A defect of hermes-agent. The attacks do not run here, where only the look before them protects this machine."""

    test_killing_everything_that_is_visible_is_survived = None
    test_sandboxes_do_not_reach_each_other_s_processes = None
    test_the_agent_is_out_of_reach = None
    test_the_system_s_files_cannot_be_changed = None
    backend_class = _FallsBackToTheHost
    caught_by = frozenset(
        {
            "test_a_sandbox_shows_that_this_machine_is_out_of_its_reach",
            "test_an_allowlist_reaches_what_it_names",
            "test_commands_have_no_privileges",
            "test_files_of_this_machine_are_invisible",
            "test_no_network_is_none",
            "test_no_socket_leads_past_the_network_namespace",
            "test_sandboxes_share_no_file",
            "test_sandboxes_share_no_temporary_file",
            "test_the_disk_is_full_at_its_limit",
        }
    )


class _ForgetsLimits(Backend):
    async def open(self, spec):
        return await super().open(replace(spec, file_size_mb=None))


class TestForgetsALimit(Confined, Isolation):
    backend_class = _ForgetsLimits
    caught_by = frozenset({"test_a_file_stays_below_its_limit"})


class _GivesTheSameToAll(Backend):
    """A request for the same sandbox while it is open returns the same object."""

    def __init__(self, inner, sandbox_class):
        super().__init__(inner, sandbox_class)
        self.opened = {}

    async def open(self, spec):
        asked = repr(spec)
        shared, users = self.opened.get(asked, (None, 0))
        shared = shared or await self.inner.open(spec)
        self.opened[asked] = shared, users + 1
        return _Shared(shared, lambda: self.leave(asked))

    async def leave(self, asked):
        shared, users = self.opened.pop(asked)
        if users > 1:
            self.opened[asked] = shared, users - 1
        else:
            await shared.aclose()


class _Shared(Passing):
    def __init__(self, inner, leave):
        super().__init__(inner)
        self.leave = leave

    async def aclose(self):
        await self.leave()


class TestGivesTheSameToAll(Confined, Isolation):
    backend_class = _GivesTheSameToAll
    caught_by = frozenset(
        {
            "test_sandboxes_do_not_reach_each_other_s_processes",
            "test_sandboxes_share_no_file",
            "test_sandboxes_share_no_temporary_file",
            "test_the_system_s_files_cannot_be_changed",
        }
    )


class _Answers(Passing):
    """Answers a command that has `words` in it with `answer`, without running it: so no process is harmed."""

    words, answer = "", b""

    async def exec(self, command, **options):
        if self.words not in command:
            return await self.inner.exec(command, **options)
        return replace(await self.inner.exec("true"), stdout=self.answer)


class _ReachesTheHypervisor(_Answers):
    words, answer = "socket-ways", b'{"native": {"socket": {"40": [-22, "opened type 1"]}}}'


class TestReachesTheHypervisor(Confined, Isolation):
    sandbox_class = _ReachesTheHypervisor
    caught_by = frozenset({"test_no_socket_leads_past_the_network_namespace"})


class _AnswersAttacks(Passing):
    """Runs no attack, and answers as if an attack had reached nothing."""

    async def exec(self, command, **options):
        is_attack = any(word in command for word in ("kill -9", "PPid", "environ", "planted"))
        return await self.inner.exec("true" if is_attack else command, **options)


class TestLooksBeforeItAttacks(Confined, BackendBase):
    """Without the look before an attack, each of these would run the attack on this machine."""

    backend_class, sandbox_class = _FallsBackToTheHost, _AnswersAttacks
    test_killing_everything_that_is_visible_is_survived = Isolation.test_killing_everything_that_is_visible_is_survived
    test_sandboxes_do_not_reach_each_other_s_processes = Isolation.test_sandboxes_do_not_reach_each_other_s_processes
    test_the_agent_is_out_of_reach = Isolation.test_the_agent_is_out_of_reach
    test_the_system_s_files_cannot_be_changed = Isolation.test_the_system_s_files_cannot_be_changed
    caught_by = frozenset(
        {
            "test_killing_everything_that_is_visible_is_survived",
            "test_sandboxes_do_not_reach_each_other_s_processes",
            "test_the_agent_is_out_of_reach",
            "test_the_system_s_files_cannot_be_changed",
        }
    )


class _DiesOfAnAttack(_Answers):
    words = "kill -9 -1"
    dead = False

    async def exec(self, command, **options):
        self.dead = self.dead or self.words in command
        if self.dead:
            raise SandboxLostError("all of it was killed")
        return await super().exec(command, **options)


class TestDiesOfAnAttack(Confined, Isolation):
    sandbox_class = _DiesOfAnAttack
    caught_by = frozenset({"test_killing_everything_that_is_visible_is_survived"})


class _ShowsItsAgent(_Answers):
    words, answer = "PPid", b"SECRET=1"


class TestShowsItsAgent(Confined, Isolation):
    sandbox_class = _ShowsItsAgent
    caught_by = frozenset({"test_the_agent_is_out_of_reach"})
