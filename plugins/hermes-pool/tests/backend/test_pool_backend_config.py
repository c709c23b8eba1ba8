"""Options of backend `pool`, refusals of its members, and leases that need no pool."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from hermes_core.cli import main
from hermes_core.contracts.errors import ConfigError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_pool.backend.options import PoolBackendOptions
from hermes_pool.backend.pool_backend import PoolBackend
from hermes_runner import RunConfig
from hermes_runner.run.config_redaction import redact_used_settings
from hermes_sandbox import LeaseBook
from hermes_testing import isolated_registry
from hermes_testing.watching import processes_here, sleep_token


def create_local(**options):
    return isolated_registry("hermes_sandbox.plugin").create("backend", "local", options)


def create(options):
    return isolated_registry("hermes_pool.plugin").create("backend", "pool", options)


@pytest.mark.parametrize(
    "form",
    [
        lambda name, options: {"backend": name, "options": options},
        lambda name, options: {"backends": [{"backend": "local"}, {"backend": name, "options": options}]},
    ],
    ids=["the only one", "one of several"],
)
@pytest.mark.parametrize("name", ["keyed", "not-there"])
def test_the_record_of_a_run_contains_no_secret_of_a_member(form, name):
    registry = isolated_registry("hermes_pool.plugin", "keyed_member")
    options = form(name, {"region": "north", "token": "s3cret"})
    given = {"tasks": "t.jsonl", "out": "out", "terminal_backend": "pool", "backend_options": options}
    written = json.dumps(redact_used_settings(RunConfig.parse(given, source="the test"), registry))
    assert "s3cret" not in written
    assert ("north" in written) == (name == "keyed")


async def test_a_level_at_which_a_member_does_not_share_is_refused_with_the_way_to_share():
    backend = create({"backend": "local"})
    with pytest.raises(SandboxRefusedError, match=r"member local#1 of the pool: .* 'none'") as caught:
        await backend.check(SandboxSpec())
    assert "slots_per_agent" in str(caught.value.hint)
    await backend.aclose()


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"isolation": "container+slot"}, "--isolation none"),
        ({"isolation": "none", "network": "none"}, "leave it out, or choose members that enforce it"),
        ({"isolation": "none", "disk_mb": 9}, "leave it out, or choose members that enforce it"),
        ({"isolation": "none", "cpu": 1.0}, "leave it out, or choose members that enforce it"),
        ({"isolation": "none", "image": "debian:12"}, "leave image out, or choose a backend that runs images"),
    ],
)
async def test_a_refusal_advises_nothing_by_which_the_members_would_not_share_hosts(fields, hint):
    """The members' own hints were for sandboxes that share nothing, such as bwrap."""
    backend = create({"backend": "local", "options": {"slots_per_agent": 2}})
    with pytest.raises(SandboxRefusedError, match="member local#1 of the pool") as caught:
        await backend.check(SandboxSpec(**fields))
    assert caught.value.hint == hint
    await backend.aclose()


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ({"network": "none"}, "leave it out, or choose members that enforce it"),
        ({"image": "a"}, "--isolation is of no help"),
    ],
)
async def test_the_hint_of_a_third_partys_member_is_replaced_by_what_it_can_do_not_by_its_words(
    field, hint, monkeypatch
):
    """It was replaced if it named an option of shipped backends."""
    member = create_local(slots_per_agent=2)
    refuse = member.refuse

    def refuse_in_other_words(spec):
        try:
            refuse(spec)
        except SandboxRefusedError as error:
            raise SandboxRefusedError(
                "no", hint="--isolation is of no help" if spec.image else "use bubblewrap"
            ) from error

    monkeypatch.setattr(member, "refuse", refuse_in_other_words)
    backend = PoolBackend(PoolBackendOptions(backend="local"), build=lambda *_: member)
    with pytest.raises(SandboxRefusedError, match="member local#1 of the pool: no") as caught:
        await backend.check(SandboxSpec(isolation="none", **field))
    assert caught.value.hint == hint
    await backend.aclose()


async def test_members_that_share_at_no_common_level_are_refused_with_what_to_choose():
    backend = create({"backends": [{"backend": "local", "options": {"slots_per_agent": 2}}, {"backend": "local"}]})
    with pytest.raises(SandboxRefusedError, match=r"local#1 .* cannot enforce isolation 'container'") as caught:
        await backend.check(SandboxSpec(isolation="container"))
    assert caught.value.hint == "choose members that share hosts at the same isolation level"
    await backend.aclose()


async def test_a_pool_without_members_is_refused():
    backend = create({})
    assert await backend.sweep() == []
    with pytest.raises(SandboxRefusedError, match="no backend"):
        await backend.check(SandboxSpec())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backend": "local", "backends": [{"backend": "local"}]}, "got both"),
        ({"options": {"slots_per_agent": 4}}, "which is missing"),
        ({"backends": [{"backend": "pool"}]}, "cannot be a member of a pool"),
        ({"backend": "local", "slots": 3}, "has no option 'slots'"),
        ({"backend": "local", "options": {"slots": 3}}, "local"),
        ({"backends": [{"backend": "local", "max_hosts": 3}]}, "max_hosts"),
    ],
)
def test_options_without_a_meaning_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        create(options)


class Stranger:
    """A leasing backend without anything else that a pool needs."""

    leases = None

    def lease_with(self, store): ...

    async def check(self, spec): ...

    async def open(self, spec): ...

    async def aclose(self): ...

    async def reclaim(self, handle): ...

    async def sweep(self, *, remove=True): ...

    async def create(self, spec): ...


def test_a_backend_that_cannot_be_a_member_is_refused_with_what_it_lacks():
    options = PoolBackendOptions(backend="stranger")
    with pytest.raises(ConfigError, match="backend 'stranger' cannot be a member of a pool: ") as caught:
        PoolBackend(options, build=lambda *_: Stranger())
    lacking = caught.value.message.partition(": ")[2].split("; ")
    assert "it has no method shares(spec)" in lacking
    assert "create does not take 'sandbox_id'" in lacking
    assert "it has no attribute declaration" in lacking
    assert "PoolableBackend" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["declaration", "setup_timeout", "patience", "create"])
def test_a_backend_with_none_in_place_of_what_a_pool_needs_is_refused_when_the_pool_is_made(name):
    """It was taken as a member, and failed with its first sandbox."""
    member = create_local(slots_per_agent=2)
    setattr(member, name, None)
    with pytest.raises(ConfigError, match="backend 'local' cannot be a member of a pool: ") as caught:
        PoolBackend(PoolBackendOptions(backend="local"), build=lambda *_: member)
    assert name in caught.value.message
    assert "PoolableBackend" in str(caught.value.hint)


OWNER = """
import asyncio, sys
from pathlib import Path
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing import isolated_registry

async def own(root, token):
    member = {"backend": "local", "options": {"slots_per_agent": 2, "root_dir": root}}
    options = {"backends": [member, member], "slots_per_host": 2}
    backend = isolated_registry("hermes_pool.plugin").create("backend", "pool", options)
    backend.lease_dir = Path(root) / "leases"
    for _ in range(3):
        sandbox = await backend.open(SandboxSpec())
        await sandbox.exec(f"setsid sleep {token} >/dev/null 2>&1 & true")
    print("open", flush=True)
    await asyncio.Event().wait()

asyncio.run(own(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_what_a_killed_caller_left_is_collected_without_the_pool(root, capsys):
    """Each lease names its member, which `gc` uses."""
    token = sleep_token()
    with subprocess.Popen([sys.executable, "-c", OWNER, str(root), token], stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"open\n"
        owner.send_signal(signal.SIGKILL)
    leases, problems = LeaseBook(root / "leases").read()
    assert problems == []
    assert {lease.backend for lease in leases} == {"local"}
    assert len(leases) == 5  # three sandboxes and two shared agents
    assert all(lease.options["root_dir"] == str(root) for lease in leases)
    argv = ["sandboxes", "gc", "--json", "--lease-dir", str(root / "leases")]
    # `gc` also looks for sandboxes without a lease; let it look only here.
    argv += ["--backend-options", json.dumps({"root_dir": str(root)})]
    assert main(argv) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["removed"]) == sorted(lease.sandbox_id for lease in leases)
    assert processes_here(token) == []
    assert [path.name for path in root.iterdir()] == ["leases"]
