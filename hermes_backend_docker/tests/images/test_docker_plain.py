"""Images without Python: a shell serves them, the commands are another user's, and what needs an agent is refused."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import (
    BackendError,
    NoPythonError,
    SandboxLacksError,
    SandboxLostError,
    SandboxRefusedError,
)
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.separation import require_separation
from hermes_testing.socket_ways import openings_in
from hermes_testing.watching import TooSoon, exists, with_more_time

pytestmark = pytest.mark.component("docker")


def _ask(**fields: Any) -> SandboxSpec:
    return SandboxSpec(**{"isolation": "container", "network": "none", **fields})


def _backend(tmp_path: Path, image: str, **options: Any) -> DockerBackend:
    made = DockerBackend(DockerOptions(image=image, pull="never", **options))
    made.lease_dir = tmp_path / "leases"
    return made


@pytest_asyncio.fixture
async def plain(plain_image: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    """A backend with an image that has neither Python nor bash."""
    made = _backend(tmp_path, plain_image)
    yield made
    await made.aclose()


async def test_an_image_without_python_is_served_by_its_shell(plain: DockerBackend, leftovers: None) -> None:
    await plain.check(_ask())
    async with await plain.open(_ask(memory_mb=64, file_size_mb=1)) as box:
        assert box.provenance["agent"] == "sh"
        assert "python3" in box.provenance["without_python"]
        assert box.provenance["weaker"] == []
        assert box.provenance["limits"] == {"pids": "1024", "memory": "64 MB, no swap", "file_size": "1 MB"}
        result = await box.exec('id -u; echo "$FROM_IMAGE"; pwd; touch mine', env={"X": "1"})
        assert (result.output, result.exit_code) == ("1000\nyes\n/workspace\n", 0)
        assert (await box.exec("head -c 2000000 /dev/zero >big")).exit_code != 0
        await box.write_file("f", b"\0\xff" * 300_000)
        assert await box.read_file("f", offset=1, length=2) == b"\xff\0"
        with pytest.raises(SandboxLacksError, match="python3"):
            await box.processes.list()


async def test_the_shell_is_out_of_reach(plain: DockerBackend) -> None:
    async with await plain.open(_ask()) as box:
        await require_separation(box)
        attacks = (
            "kill -9 1 $PPID; kill -9 -1",
            "cat /proc/1/environ /proc/1/mem /proc/$PPID/fd/0; echo forged >/proc/1/fd/1",
            "echo forged >/proc/self/fd/1; cat /run/hermes/state/* /run/hermes/state/.h*/*.o.h",
            "rm -rf /run/hermes/state; mv /run/hermes /run/other",
        )
        for attack in attacks:
            await box.exec(attack, timeout=10)
            assert (await box.exec("echo on")).output == "on\n"
        assert (await box.exec("cat /proc/1/environ")).exit_code != 0


@pytest.mark.parametrize(
    "command",
    [
        (
            'setsid sh -c \'env -i setsid sh -c "touch one; exec sleep 600" & '
            'env -i sh -c "touch two; exec sleep 600" &\' & sleep 600'
        ),
        "trap '' TERM; sh -c 'trap \"\" TERM; touch one; sleep 600' & touch two; wait",
        "touch one two; yes",
    ],
    ids=["escapes", "deaf", "flood"],
)
async def test_a_timeout_kills_all_that_was_started_and_nothing_else(plain: DockerBackend, command: str) -> None:
    async with await plain.open(_ask(pids=64)) as box:
        await box.exec("sleep 599 & export KEPT=yes")

        async def is_stopped(seconds: float) -> None:
            await box.exec("rm -f one two")
            assert (await box.exec(command, timeout=seconds)).timed_out
            begun = await exists(box, "one") and await exists(box, "two")
            TooSoon.unless(begun, "not everything that has to be killed had been started")

        await with_more_time(is_stopped)
        listed = (await box.exec("echo $KEPT; ps | grep -c '[s]leep 599'; ps | grep -c '[s]leep 600'")).output
        assert listed == "yes\n1\n0\n"


async def test_renewing_keeps_files_and_the_container(plain: DockerBackend) -> None:
    async with await plain.open(_ask()) as box:
        await box.exec("export STATE=old; touch kept; sleep 600 & yes >/dev/null &")
        for _ in range(3):
            await box.renew()
            assert (await box.exec("echo ${STATE-none}; ls; ps | grep -c '[s]leep 600'")).output == "none\nkept\n0\n"


@pytest.mark.parametrize("limits", [{}, {"disk_mb": 16, "memory_mb": 128}])
async def test_no_socket_leads_past_the_network_namespace(
    plain_image: str, tmp_path: Path, limits: dict[str, int]
) -> None:
    plain = _backend(tmp_path, plain_image, user="1001:1001")
    try:
        async with await plain.open(_ask(**limits)) as box:
            for _ in range(2):
                assert await openings_in(box, tmp_path) == []
                await box.renew()
    finally:
        await plain.aclose()


async def test_a_limited_disk_cannot_be_used_up_against_the_shell(plain_image: str, tmp_path: Path) -> None:
    plain = _backend(tmp_path, plain_image, user="1001:1001")
    try:
        async with await plain.open(_ask(disk_mb=16, memory_mb=128)) as box:
            # Four times what each of these places may hold, and no more: an engine may not keep to it.
            fill = "; ".join(f"head -c {64 << 20} /dev/zero >{path}" for path in ("big", "/tmp/big", "/run/big"))
            full = await box.exec(f"{fill}; id -u")
            assert full.stdout == b"1001\n"
            with pytest.raises(OSError, match="No space left"):
                await box.write_file("more", b"x" * 100_000)
            await box.exec("rm big; export KEPT=yes")
            assert (await box.exec("echo $KEPT")).output == "yes\n"
    finally:
        await plain.aclose()


async def test_a_user_that_a_read_only_image_does_not_know_is_refused(plain: DockerBackend, leftovers: None) -> None:
    with pytest.raises(BackendError, match="setpriv") as caught:
        await plain.open(_ask(disk_mb=16, memory_mb=128))
    assert "/etc/passwd" in str(caught.value.hint)


@pytest.mark.parametrize(
    "fields",
    [{"session": "live"}, {"network": "allowlist", "allow_hosts": ("example.org",)}],
    ids=["live", "allowlist"],
)
async def test_what_needs_an_agent_is_refused(plain: DockerBackend, fields: dict[str, Any], leftovers: None) -> None:
    for _ in range(2):  # before it is known that there is no Python, and after
        with pytest.raises(SandboxRefusedError, match="Python"):
            await plain.open(_ask(**fields))


async def test_slots_of_a_container_need_python(plain: DockerBackend, leftovers: None) -> None:
    with pytest.raises(NoPythonError, match="python3"):
        await plain.open(_ask(isolation="container+slot"))


async def test_never_means_never(plain_image: str, tmp_path: Path, leftovers: None) -> None:
    for options in ({"plain": "never"}, {"python": "python3"}):
        backend = _backend(tmp_path, plain_image, **options)
        with pytest.raises(BackendError, match="python3"):
            await backend.open(_ask())
        await backend.aclose()


async def test_always_means_a_shell_where_there_is_python(image: str, tmp_path: Path) -> None:
    backend = _backend(tmp_path, image, plain="always")
    try:
        async with await backend.open(_ask()) as box:
            assert box.provenance["agent"] == "sh"
            assert (await box.exec("id -u; python3 -c 'print(6 * 7)'")).output == "1000\n42\n"
    finally:
        await backend.aclose()


async def test_commands_that_are_root_are_recorded_as_weaker(plain_image: str, tmp_path: Path) -> None:
    backend = _backend(tmp_path, plain_image, user="root")
    try:
        async with await backend.open(_ask()) as box:
            assert len(box.provenance["weaker"]) == 2
            assert (await box.exec("id -u")).output == "0\n"
    finally:
        await backend.aclose()


async def test_a_container_that_is_removed_is_a_lost_sandbox(plain: DockerBackend) -> None:
    async with await plain.open(_ask()) as box:
        subprocess.run(["docker", "rm", "-f", f"hermes-{box.id}"], check=True, capture_output=True)
        with pytest.raises(SandboxLostError):
            await box.exec("true")
