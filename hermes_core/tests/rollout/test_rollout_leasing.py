"""Promises to the author of a backend that leases its sandboxes or queues for them, and needs the kernel alone."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core.contracts.errors import BackendError, BrokenComponentError, UnavailableComponentError
from hermes_core.contracts.leases import Collected, LeaseStore, LeasingBackend
from hermes_core.contracts.sandbox import QueueingBackend, SandboxSpec
from hermes_core.rollout.leasing import supply_lease_store
from hermes_core.rollout.runtime import Runtime
from hermes_core.specs import Ref

PLUGIN = '''
from hermes_core.contracts.errors import BackendError, BrokenComponentError, UnavailableComponentError
from hermes_core.contracts.leases import Collected


@hookimpl
def hermes_backends():
    return [
        BackendSpec(name=kind.__name__.lower(), summary="Opens nothing.", target=f"SELF:{kind.__name__}")
        for kind in (Plain, Leasing, Provided, Forgetful, Queueing)
    ]


class Plain:
    """A backend whose sandboxes end with their process."""

    def __init__(self):
        self.opening = 0
        self.most = 0

    async def check(self, spec):
        pass

    async def open(self, spec):
        import asyncio

        self.opening += 1
        self.most = max(self.most, self.opening)
        for _ in range(10):
            await asyncio.sleep(0)
        self.opening -= 1
        raise BackendError("there are no sandboxes here")

    async def aclose(self):
        pass


class Leasing(Plain):
    def __init__(self):
        super().__init__()
        self.leases = None

    def lease_with(self, store):
        self.leases = store

    async def reclaim(self, handle):
        pass

    async def sweep(self, *, remove=True):
        return []


class Provided(Leasing):
    def __init__(self):
        super().__init__()
        self.leases = Store()


class Forgetful(Leasing):
    def lease_with(self, store):
        pass


class Queueing(Plain):
    def has_queue(self, spec):
        return spec.network == "none"


class Store:
    count = 0

    async def take(self, terms):
        pass

    async def amend(self, sandbox_id, handle):
        pass

    async def give_up(self, sandbox_id):
        pass

    async def collect(self, registry):
        return Collected()
'''
STORE = """

@hookimpl
def hermes_lease_stores():
    return [LeaseStoreSpec(name="files", summary="Forgets all.", target="SELF:Store")]
"""


@pytest.fixture
def new_runtime(site, load):
    """Make a runtime on one of the backends, where there is a store, or none."""

    def make(name, *, store=True):
        plugin = site.install("acme-leasing", PLUGIN + (STORE if store else ""))
        return Runtime(load(plugin), backend=Ref(kind="backend", name=name))

    return make


async def test_a_backend_that_leases_is_given_the_installed_store(new_runtime):
    async with new_runtime("leasing") as runtime:
        backend = runtime.backend
        assert isinstance(backend, LeasingBackend)
        assert isinstance(backend.leases, LeaseStore)
        assert runtime.leases is backend.leases


async def test_a_backend_that_leases_is_refused_where_nothing_writes_leases(new_runtime):
    async with new_runtime("leasing", store=False) as runtime:
        with pytest.raises(UnavailableComponentError, match="backend 'leasing' cannot be used") as caught:
            _ = runtime.backend
        assert "hermes-sandbox" in str(caught.value.hint)
        with pytest.raises(UnavailableComponentError, match="outlive"):
            async with runtime.open_sandbox(SandboxSpec()):
                raise AssertionError("unreachable")


async def test_a_backend_that_does_not_keep_the_store_is_broken(new_runtime):
    async with new_runtime("forgetful") as runtime:
        with pytest.raises(BrokenComponentError, match="'forgetful': expected a lease store, got NoneType"):
            _ = runtime.backend


async def test_a_backend_with_a_store_of_its_own_keeps_it(new_runtime):
    async with new_runtime("provided", store=False) as runtime:
        own = runtime.backend.leases
        assert type(own).__name__ == "Store"
        assert runtime.leases is own
        assert await own.collect(runtime.registry) == Collected()


async def test_a_backend_that_leases_nothing_needs_no_store(new_runtime):
    async with new_runtime("plain", store=False) as runtime:
        assert not isinstance(runtime.backend, LeasingBackend | QueueingBackend)
        assert runtime.leases is None


def test_options_put_another_store_in_the_place_of_the_own_one(new_runtime):
    runtime = new_runtime("provided")
    own = runtime.backend.leases
    found = supply_lease_store(runtime.backend, runtime.registry, "provided", options={})
    assert found is runtime.backend.leases
    assert found is not own


@pytest.mark.parametrize(
    ("backend", "network", "at_once"), [("plain", "none", 1), ("queueing", "full", 1), ("queueing", "none", 5)]
)
async def test_those_who_wait_in_a_queue_of_the_backend_take_no_turn_to_start(new_runtime, backend, network, at_once):
    async with new_runtime(backend) as made:
        runtime = Runtime(made.registry, backend=made.backend_ref, max_sandbox_starts=1)

        async def fail():
            with pytest.raises(BackendError, match="no sandboxes here"):
                async with runtime.open_sandbox(SandboxSpec(network=network)):
                    raise AssertionError("unreachable")

        await asyncio.gather(*(fail() for _ in range(5)))
        assert vars(runtime.backend)["most"] == at_once
