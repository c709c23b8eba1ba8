"""Which sandbox a task gets of what it and the run ask for, and which one its verifiers."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Precautions, Task
from hermes_core.rollout import Runtime, merge_sandbox_spec
from hermes_core.rollout.verification.verifier_sandboxes import least_access
from hermes_core.specs import Ref

DISK = {"disk_mb": 10240, "wishes": ("disk_mb",)}


@pytest.mark.parametrize(
    ("run", "task", "wanted"),
    [
        ({}, DISK, DISK),
        ({"disk_mb": 512}, DISK, {"disk_mb": 512}),
        ({"disk_mb": 512}, {"disk_mb": 10240}, {"disk_mb": 10240}),
        ({"disk_mb": 512, "wishes": ("disk_mb",)}, DISK, DISK),
        ({"disk_mb": 512, "wishes": ("disk_mb",)}, {"cpu": 1.0}, {"disk_mb": 512, "wishes": ("disk_mb",), "cpu": 1.0}),
        ({"memory_mb": 64}, DISK, {"memory_mb": 64, **DISK}),
        ({"user": "root"}, {"user": "agent"}, {"user": "agent"}),
    ],
)
def test_a_task_s_wish_gives_way_to_what_the_run_asks_for(run, task, wanted):
    assert merge_sandbox_spec(SandboxSpec(**run), task, rollout_id="r") == SandboxSpec(**wanted, rollout_id="r")


def test_a_wish_for_what_is_no_field_is_an_error():
    with pytest.raises(ConfigError, match="no key 'storage'"):
        merge_sandbox_spec(SandboxSpec(), {"wishes": ("storage",)})


PLUGIN = """
@hookimpl
def hermes_backends():
    return [
        BackendSpec(name=kind.__name__.lower(), summary="Opens nothing.", target=f"SELF:{kind.__name__}")
        for kind in (Rootless, Rooted, Users)
    ]


class Rootless:
    async def check(self, spec):
        pass

    async def open(self, spec):
        raise NotImplementedError

    async def aclose(self):
        pass


class Rooted(Rootless):
    def commands_are_root(self, spec):
        return True


class Users(Rootless):
    def commands_are_root(self, spec):
        return spec.user == "root"
"""
ARTIFACTS = Precautions(artifacts=("/",))
AS_ROOT = Precautions(artifacts=("/",), as_root=True)


@pytest.mark.parametrize(
    ("backend", "user", "precautions", "judge", "access"),
    [
        ("rootless", "agent", AS_ROOT, "agent", "live"),
        ("rooted", None, AS_ROOT, None, "fresh"),
        ("users", "agent", AS_ROOT, "root", "fresh"),
        ("users", "root", AS_ROOT, "root", "fresh"),
        ("users", "agent", ARTIFACTS, "agent", "live"),
        ("users", "agent", Precautions(as_root=True), "root", "live"),
    ],
)
async def test_a_judge_is_root_in_a_sandbox_of_its_own_where_the_backend_has_users(
    site, load, backend, user, precautions, judge, access
):
    registry = load(site.install("acme-users", PLUGIN))
    task = Task(id="t", messages=(), sandbox={"user": user}, precautions=precautions)
    async with Runtime(registry, backend=Ref(kind="backend", name=backend)) as runtime:
        assert runtime.judge_sandbox(task, rollout_id="r").user == judge
        assert runtime.sandbox_for(task, rollout_id="r").user == user
        assert least_access(runtime, task) == access
