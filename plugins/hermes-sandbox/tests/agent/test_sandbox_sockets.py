"""With a limited network no command has a family of sockets that goes past it; the suites try each of them inside."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import plain_support
import pytest
from filters import AARCH64, ALLOW, ARM, ERROR, I386, KILL, X86_64, verdict
from plain_support import plain_sandbox
from sandbox_support import sandbox as open_one

from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.agent.seccomp import FAMILIES, socket_filter
from hermes_sandbox.posix_shell import confinement
from hermes_sandbox.posix_shell.confinement import confining_program
from hermes_sandbox.protocol.client import AgentClient
from hermes_testing.socket_ways import SOCKET_WAYS, openings, openings_in

SUPPORT = Path(__file__).parents[1] / "support"
MACHINES = {"x86_64": (X86_64, 41, 53), "aarch64": (AARCH64, 198, 199)}
NO_FAMILY, NO_CALL = ERROR | errno.EAFNOSUPPORT, ERROR | errno.ENOSYS
PACKET, NONBLOCK, CLOEXEC = 10, 0o4000, 0o2000000
COMPILERS = {"x86_64": "x86_64-linux-gnu-as", "aarch64": "aarch64-linux-gnu-as"}
LOOPBACK = """
import os, socket, threading
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_UNIX, None)):
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        listener.bind((host, 0) if host else "path")
        listener.listen()
        with socket.socket(family) as client:
            client.connect(listener.getsockname())
            served, _ = listener.accept()
            with served:
                client.send(b"heard")
                print(family.name, served.recv(5).decode())
print(socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4])
print(sorted(name for _, name in socket.if_nameindex()), len(socket.socketpair()))
"""


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


@pytest.mark.parametrize("which", [0, 1])
def test_each_family_but_those_of_a_network_namespace_is_none(machine, which):
    architecture, *numbers = MACHINES[machine]
    program = socket_filter(machine)
    for family in [*range(64), 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, (1 << 32) + 40, -1 & (1 << 64) - 1]:
        # An int for the kernel: the upper half of the register is nothing to it.
        expected = ALLOW if family & 0xFFFFFFFF in FAMILIES.values() else NO_FAMILY
        for kind in (1, 2, 3, 5, 1 | NONBLOCK, 2 | CLOEXEC, 1 | 1 << 28, (1 << 32) + 1):
            assert verdict(program, architecture, numbers[which], family, kind) == expected, (family, kind)
        for kind in (PACKET, PACKET | CLOEXEC, (1 << 32) + PACKET):
            assert verdict(program, architecture, numbers[which], family, kind) == NO_FAMILY, (family, kind)


def test_of_all_other_calls_only_io_uring_is_absent(machine):
    architecture, *numbers = MACHINES[machine]
    program = socket_filter(machine)
    absent = [number for number in range(1024) if verdict(program, architecture, number, 40) == NO_CALL]
    allowed = [number for number in range(1024) if verdict(program, architecture, number, 40) == ALLOW]
    assert absent == [425, 426, 427]
    assert sorted({*range(1024)} - {*absent, *allowed}) == numbers


def test_every_other_interface_of_the_kernel_is_closed(machine):
    architecture = MACHINES[machine][0]
    program = socket_filter(machine)
    others = {X86_64, I386, AARCH64, ARM, 0, 0xC00000F3, architecture ^ 0x80000000} - {architecture}
    assert {verdict(program, other, number) for other in others for number in range(512)} == {KILL}
    if machine == "x86_64":
        for base in (1 << 30, (1 << 30) + (1 << 29), 1 << 31):
            assert {verdict(program, architecture, base + number, 1, 1) for number in range(600)} == {NO_CALL}


@pytest.mark.component("bwrap")
@pytest.mark.parametrize("session", ["robust", "live"])
async def test_no_way_to_a_command_s_process_leads_past_the_filter(session):
    async with open_one("bwrap", session=session, network="none") as sandbox:
        await sandbox.write_file("ways.py", SOCKET_WAYS.encode())
        started = await sandbox.processes.start("python3 ways.py > background; echo $? > code")
        assert (await sandbox.processes.wait(started.id, timeout=60)).exit_code == 0
        assert await sandbox.read_file("code") == b"0\n"
        assert openings(await sandbox.read_file("background")) == []
        nested = "setsid env -i bash -c 'exec python3 ways.py' | cat"
        assert openings((await sandbox.exec(nested)).stdout) == []
        assert sandbox.provenance["socket_families"] == list(FAMILIES)


@pytest.mark.component("bwrap")
async def test_what_ends_in_the_sandbox_works_as_ever():
    async with open_one("bwrap", network="none") as sandbox:
        await sandbox.write_file("loopback.py", LOOPBACK.encode())
        heard = "AF_INET heard\nAF_INET6 heard\nAF_UNIX heard\n"
        assert (await sandbox.exec("python3 loopback.py")).output == f"{heard}('127.0.0.1', 80)\n['lo'] 2\n"


@pytest.mark.component("bwrap")
async def test_a_full_network_is_not_filtered_and_says_nothing_of_families():
    async with open_one("bwrap", network="full") as sandbox:
        # Whatever the kernel knows of the family, it refuses the flag first.
        tried = await sandbox.exec("python3 -c 'import socket; socket.socket(40, 1 | 1 << 28)' 2>&1 | tail -n 1")
        assert tried.output == f"OSError: [Errno {errno.EINVAL}] {os.strerror(errno.EINVAL)}\n"
        assert "socket_families" not in sandbox.provenance


@pytest.mark.component("bwrap")
@pytest.mark.parametrize("network", ["none", "allowlist"])
async def test_a_network_that_cannot_be_limited_is_refused(monkeypatch, network):
    connect = AgentClient.connect

    async def connect_unconfined(stream, hello, **options):
        assert hello["confine_sockets"]
        return await connect(stream, {**hello, "confine_sockets": False}, **options)

    monkeypatch.setattr(AgentClient, "connect", connect_unconfined)
    hosts = ("example.org",) if network == "allowlist" else ()
    with pytest.raises(SandboxRefusedError, match=f"network '{network}' cannot be enforced here") as caught:
        async with open_one("bwrap", network=network, allow_hosts=hosts):
            pass
    assert "CONFIG_SECCOMP_FILTER" in caught.value.hint


@pytest.fixture
def without_network(monkeypatch):
    declared = replace(plain_support.PLAIN, networks=frozenset({"none"}))
    monkeypatch.setattr(plain_support.PlainBackend, "declaration", declared)


@pytest.mark.usefixtures("without_network")
@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
async def test_a_shell_in_the_agent_s_place_confines_its_commands_too(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on PATH")
    async with plain_sandbox(shell, network="none") as sandbox:
        for _ in range(2):
            assert await openings_in(sandbox, tmp_path) == []
            assert (await sandbox.exec("find ../state -name '.hermes-*' -type f")).output == ""
            await sandbox.renew()
        assert sandbox.provenance["socket_families"] == list(FAMILIES)


async def test_a_shell_with_a_full_network_is_not_filtered(tmp_path):
    async with plain_sandbox() as sandbox:
        found = await openings_in(sandbox, tmp_path)
        assert any(line.startswith(f"native: socket of family 40: [-{errno.EINVAL}") for line in found)


@pytest.mark.usefixtures("without_network")
async def test_a_shell_that_cannot_confine_its_commands_serves_no_limited_network(monkeypatch):
    monkeypatch.setattr(confinement, "_MACHINES", {})
    with pytest.raises(SandboxRefusedError, match="cannot be limited") as caught:
        async with plain_sandbox(network="none"):
            pass
    assert "uname" in caught.value.hint


def test_the_code_of_the_confining_program_is_what_its_source_says(machine, tmp_path):
    here = os.uname().machine == machine
    assembler = shutil.which("as" if here else COMPILERS[machine])
    if assembler is None or shutil.which("objcopy") is None:
        pytest.skip(f"there is no assembler for {machine}")
    made = tmp_path / "made"
    subprocess.run([assembler, "-o", made, SUPPORT / f"confining_{machine}.s"], check=True)
    raw = tmp_path / "raw"
    objcopy = "objcopy" if here else COMPILERS[machine].replace("-as", "-objcopy")
    subprocess.run([objcopy, "-O", "binary", "-j", ".text", made, raw], check=True)
    program = confining_program(machine)
    assert program[120:].startswith(raw.read_bytes())
    assert program.endswith(socket_filter(machine))


def test_the_confining_program_runs_what_it_is_told_with_its_arguments_and_variables(tmp_path):
    machine = os.uname().machine
    if machine not in MACHINES:
        pytest.skip(f"there is no such program for {machine}")
    program = tmp_path / "confine"
    program.write_bytes(confining_program(machine))
    program.chmod(0o755)
    script = 'echo "$0 $* $VARIABLE"; grep -c "^Seccomp:.2" /proc/self/status; exit 7'
    argv = [program, "/bin/sh", "-c", script, "name", "one", "two words"]
    ran = subprocess.run(argv, env={"VARIABLE": "kept", "PATH": "/usr/bin:/bin"}, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (7, b"name one two words kept\n1\n")
    assert subprocess.run([program, "/not/there"], check=False).returncode == 124


def test_an_agent_that_starts_again_in_place_a_thousand_times_keeps_its_filters():
    again = "all(shield() and confine_sockets() == '' for _ in range(1000))"
    program = f"from hermes_sandbox.agent.seccomp import confine_sockets, shield; print({again})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
