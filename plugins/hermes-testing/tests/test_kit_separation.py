"""Before an attack a sandbox must show that it cannot reach this machine; an inconclusive look is refused."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import LocalBackend, LocalOptions
from hermes_testing.separation import require_separation

FAR_AWAY = {"namespace": "pid:[7]", "capabilities": "0000000000000000"}


@asynccontextmanager
async def sandbox_at(level, root):
    backend = LocalBackend(LocalOptions(root_dir=root))
    backend.lease_dir = root / "leases"
    async with await backend.open(SandboxSpec(isolation=level)) as opened:
        yield opened
    await backend.aclose()


@pytest.fixture
async def here(tmp_path):
    async with sandbox_at("none", tmp_path) as opened:
        yield opened


class Edited:
    """A sandbox without separation that lies: in each line that `said` names, and about what it sees."""

    def __init__(self, inner, said, sees=lambda own, _foreign: own, **fields):
        self.inner, self.said, self.sees, self.fields = inner, said, sees, fields

    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        found = dict(line.split(" ", 1) for line in result.output.splitlines())
        own = re.search(r" (600\.\d+) ", command)[1]
        foreign = " ".join(set(found["seen"].split()) - {own})
        told = {**found, "seen": self.sees(own, foreign), **self.said}
        output = "".join(f"{name} {text}\n" for name, text in told.items() if text is not None)
        return replace(result, **{"output": output, **self.fields})


async def test_a_sandbox_without_any_separation_is_refused(here):
    with pytest.raises(AssertionError, match="sees the processes of this machine"):
        await require_separation(here)


@pytest.mark.parametrize("said", [FAR_AWAY, {**FAR_AWAY, "boot": None}, {"boot": "b", "capabilities": "0"}])
async def test_another_namespace_or_another_kernel_is_accepted(here, said):
    await require_separation(Edited(here, said))


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"said": {**FAR_AWAY, "end": None}}, "failed"),
        ({"said": FAR_AWAY, "timed_out": True}, "did not end"),
        ({"said": FAR_AWAY, "sees": lambda own, foreign: f"{own} {foreign}"}, "sees the processes of this machine"),
        ({"said": FAR_AWAY, "sees": lambda _own, _foreign: ""}, "does not find its own processes"),
        ({"said": FAR_AWAY, "sees": lambda _own, _foreign: None}, "does not find its own processes"),
        ({"said": {"capabilities": "0"}}, "PID namespace"),
        ({"said": {"capabilities": "0", "namespace": "", "boot": ""}}, "PID namespace"),
        ({"said": {**FAR_AWAY, "capabilities": "00000000a80425fb"}}, "capabilities"),
        ({"said": {**FAR_AWAY, "capabilities": ""}}, "capabilities"),
    ],
)
async def test_what_shows_too_little_is_refused(here, spoilt, reason):
    with pytest.raises(AssertionError, match=reason):
        await require_separation(Edited(here, **spoilt))


class WithoutPrograms:
    """A sandbox without the programs for the look."""

    def __init__(self, inner, before):
        self.inner, self.before = inner, before

    async def exec(self, command, **options):
        return await self.inner.exec(self.before + command, **options)


@pytest.fixture
async def bwrap_sandbox():
    # Not tmp_path: its parents are closed to the unprivileged user that bubblewrap runs as.
    with TemporaryDirectory(prefix="hermes-test-") as name:
        root = Path(name)
        root.chmod(0o755)
        async with sandbox_at("bwrap", root) as opened:
            yield opened


@pytest.mark.component("bwrap")
@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("PATH=/nonexistent; ", "failed"),
        ("mkdir b; ln -s /bin/sh /bin/cat /bin/tr /bin/sort /bin/sed b; PATH=$PWD/b; ", "does not find its own"),
        ("mkdir b; ln -s /bin/sh /bin/tr /bin/sort /bin/sed /bin/grep b; PATH=$PWD/b; ", "does not find its own"),
    ],
)
async def test_a_sandbox_in_which_nothing_can_be_found_out_is_refused(bwrap_sandbox, before, reason):
    with pytest.raises(AssertionError, match=reason):
        await require_separation(WithoutPrograms(bwrap_sandbox, before))


@pytest.mark.component("bwrap")
async def test_a_sandbox_with_processes_of_its_own_is_accepted(bwrap_sandbox):
    await require_separation(bwrap_sandbox)
