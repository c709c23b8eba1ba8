"""Every failure to get a sandbox on a machine is a typed error with a hint."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess

import pytest
from sshd_server import SshServer, make_key

from hermes_backend_ssh.backend import SshBackend
from hermes_backend_ssh.options import SshOptions
from hermes_core.contracts.errors import BackendError, ConfigError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.registries import isolated_registry
from hermes_testing.servers import closed_port

pytestmark = pytest.mark.component("sshd")


async def refusal(options, kind=BackendError, **fields):
    """Return what is said when a sandbox cannot be had."""
    backend = SshBackend(SshOptions(**options))
    try:
        with pytest.raises(kind) as caught:
            await backend.check(SandboxSpec(**fields))
    finally:
        await backend.aclose()
    assert caught.value.hint
    return str(caught.value)


@pytest.fixture
def free_port():
    with closed_port() as port:
        yield port


async def test_a_port_without_a_listener(sshd, free_port):
    said = await refusal({**sshd.options, "port": free_port})
    assert f"nothing listens on 127.0.0.1 port {free_port}" in said
    assert "systemctl start ssh" in said


async def test_a_name_that_does_not_exist(sshd):
    said = await refusal({**sshd.options, "host": "nowhere.invalid"})
    assert "host name 'nowhere.invalid' cannot be resolved" in said


async def test_an_address_that_cannot_be_reached(sshd):
    said = await refusal({**sshd.options, "host": "255.255.255.255"})
    assert f"255.255.255.255 port {sshd.port} cannot be reached" in said


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_is_not_sshd(sshd, greeting):
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = {**sshd.options, "port": server.getsockname()[1], "connect_timeout": 0.5}
        if greeting:
            client = socket.create_connection(server.getsockname())
            server.accept()[0].close()
            client.close()
        said = await refusal(options)
    assert "SSH negotiation with" in said


async def test_an_unknown_host_key_is_refused_and_shown(sshd, tmp_path):
    known = tmp_path / "known_hosts"
    said = await refusal({**sshd.options, "known_hosts": known}, SandboxRefusedError)
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", sshd.folder / "host.pub"], text=True)
    assert shown.split()[1] in said
    assert f"the host key of [127.0.0.1]:{sshd.port} is unknown" in said
    assert "ssh-keyscan" in said
    assert not known.exists()


async def test_accept_new_remembers_a_machine_that_was_never_seen(sshd, tmp_path):
    known = tmp_path / "new" / "known_hosts"
    for policy in ("accept-new", "strict"):
        backend = SshBackend(SshOptions(**{**sshd.options, "known_hosts": known, "host_key_policy": policy}))
        await backend.check(SandboxSpec())
        await backend.aclose()
    assert known.read_text().split() == sshd.known_hosts.read_text().split()


@pytest.mark.parametrize("policy", ["strict", "accept-new"])
async def test_a_changed_host_key_is_never_accepted(own_sshd, policy):
    own_sshd.known_hosts.write_text("# a comment\n\n" + own_sshd.known_hosts.read_text())
    own_sshd.change_host_key()
    before = own_sshd.known_hosts.read_text()
    said = await refusal({**own_sshd.options, "host_key_policy": policy}, SandboxRefusedError)
    assert "HAS CHANGED" in said
    assert f"{own_sshd.known_hosts}:3" in said
    assert "ssh-keygen -f" in said
    assert own_sshd.known_hosts.read_text() == before


async def test_a_revoked_host_key_is_refused(sshd, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(f"{sshd.known_hosts.read_text()}@revoked {sshd.known_hosts.read_text()}")
    with pytest.raises(SandboxRefusedError, match=r"is revoked, by .*known_hosts:2"):
        await SshBackend(SshOptions(**{**sshd.options, "known_hosts": known})).check(SandboxSpec())


async def test_a_hashed_host_is_recognised(sshd, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    backend = SshBackend(SshOptions(**{**sshd.options, "known_hosts": known}))
    await backend.check(SandboxSpec())
    await backend.aclose()


async def test_a_wrong_key(sshd, tmp_path):
    key = make_key(tmp_path / "stranger")
    said = await refusal({**sshd.options, "key": key}, SandboxRefusedError)
    assert "refuses the login" in said
    assert f"tried key {key}" in said
    assert "it accepts publickey" in said
    assert f"ssh-copy-id -i {key}.pub" in said


async def test_a_password_where_passwords_are_disabled(sshd):
    options = {**sshd.options, "key": None, "password": "correct horse"}
    said = await refusal(options, SandboxRefusedError)
    assert "tried the password; it accepts publickey" in said
    assert "correct horse" not in said


async def test_nothing_to_log_in_with(sshd, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    said = await refusal({**sshd.options, "key": None}, SandboxRefusedError)
    assert "tried nothing: no key, no ssh-agent, no password; it accepts publickey" in said


async def test_a_key_that_is_not_there(sshd, tmp_path):
    said = await refusal({**sshd.options, "key": tmp_path / "absent"}, SandboxRefusedError)
    assert f"the private key {tmp_path}/absent" in said
    assert "does not exist" in said


async def test_the_public_half_of_a_key(sshd):
    said = await refusal({**sshd.options, "key": f"{sshd.key}.pub"}, SandboxRefusedError)
    assert f"name the private key: {sshd.key}" in said


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_an_encrypted_key_needs_its_passphrase(own_sshd, tmp_path, kind):
    key = make_key(tmp_path / "locked", passphrase="open sesame", kind=kind)
    own_sshd.authorize(key)
    options = {**own_sshd.options, "key": key}
    assert "no passphrase was given" in await refusal(options, SandboxRefusedError)
    said = await refusal({**options, "passphrase": "open barley"}, SandboxRefusedError)
    assert "the passphrase is wrong" in said
    assert "barley" not in said
    backend = SshBackend(SshOptions(**options, passphrase="open sesame"))
    await backend.check(SandboxSpec())
    await backend.aclose()


async def test_keys_of_an_ssh_agent(own_sshd, tmp_path, monkeypatch):
    socket_path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        while subprocess.run(["ssh-add", "-q", own_sshd.key], check=False, capture_output=True).returncode != 0:
            assert agent.poll() is None  # it does not listen yet
        backend = SshBackend(SshOptions(**{**own_sshd.options, "key": None}))
        await backend.check(SandboxSpec())
        await backend.aclose()
    finally:
        agent.kill()
        agent.wait()


async def test_a_machine_without_python(sshd):
    said = await refusal({**sshd.options, "python": "/opt/none/python3"}, SandboxRefusedError)
    assert "has no /opt/none/python3 that runs; Python 3.8 or newer is needed" in said
    assert "apt-get install python3" in said


def _program(path, *lines):
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


async def test_a_python_that_is_too_old(sshd, tmp_path):
    python = _program(tmp_path / "python", "echo 3 6", "echo /usr/bin/python3.6")
    said = await refusal({**sshd.options, "python": python}, SandboxRefusedError)
    assert "is Python 3.6; 3.8 or newer is needed" in said


async def test_a_bash_that_is_too_old(sshd, tmp_path):
    bash = _program(tmp_path / "bash", "echo 4 2")
    said = await refusal({**sshd.options, "bash": bash}, SandboxRefusedError)
    assert f"{bash} of" in said
    assert "is 4.2; bash 4.4 or newer is needed" in said


async def test_a_directory_that_cannot_be_written(sshd):
    said = await refusal({**sshd.options, "root_dir": "/proc"}, SandboxRefusedError)
    assert "/proc of" in said
    assert "root_dir" in said


@contextlib.contextmanager
def small_disk(folder, **limits):
    folder.mkdir()
    sizes = ",".join(f"{name}={value}" for name, value in limits.items())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", sizes, "none", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_a_full_disk_before_the_sandbox(sshd, tmp_path):
    with small_disk(tmp_path / "disk", nr_inodes=2) as disk:
        (disk / "last").touch()
        said = await refusal({**sshd.options, "root_dir": str(disk)})
    assert "its disk is full" in said
    assert f"df -h {disk}" in said


async def test_a_full_disk_in_the_sandbox(sshd, tmp_path):
    with small_disk(tmp_path / "disk", size="512k") as disk:
        backend = SshBackend(SshOptions(**sshd.options, root_dir=str(disk)))
        async with await backend.open(SandboxSpec()) as sandbox:
            with pytest.raises(OSError, match="No space left on device"):
                await sandbox.write_file("big", bytes(1 << 20))
            assert (await sandbox.exec("ls; echo still here")).output == "still here\n"
        await backend.aclose()
        assert list(disk.iterdir()) == []


async def test_a_login_shell_that_talks(tmp_path):
    noise = tmp_path / "noise"
    noise.write_text("echo Welcome to the cluster\n")
    server = SshServer(tmp_path / "sshd", f"SetEnv SHLVL=2 BASH_ENV={noise}").start()
    try:
        said = await refusal(server.options, SandboxRefusedError)
    finally:
        server.stop()
    assert "prints something before a command runs: 'Welcome to the cluster'" in said


async def test_an_account_that_runs_no_commands(tmp_path):
    server = SshServer(tmp_path / "sshd", "ForceCommand echo this account is closed").start()
    try:
        said = await refusal(server.options)
    finally:
        server.stop()
    assert "runs no command: this account is closed" in said


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"prot": 22}, "prot"),
        ({"port": 0}, "port"),
        ({"host": "two words"}, "host"),
        ({"host_key_policy": "accept-anything"}, "host_key_policy"),
        ({"root_dir": "relative"}, "root_dir"),
    ],
)
def test_invalid_options(wrong, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        isolated_registry("hermes_backend_ssh.plugin").create("backend", "ssh", {"host": "h", **wrong})


def test_the_machine_can_come_from_the_environment(monkeypatch):
    for name, value in {"HOST": "gpu7", "USER": "lab", "PORT": "2222", "KEY": "/k"}.items():
        monkeypatch.setenv(f"TERMINAL_SSH_{name}", value)
    options = SshOptions.model_validate({})
    assert (options.name, str(options.key)) == ("lab@gpu7:2222", "/k")
    # A config that names a machine is not mixed with another one's port and key.
    assert (SshOptions(host="other", user="me").name, SshOptions(host="other").key) == ("me@other", None)


def test_secrets_are_not_shown():
    jump = {"host": "j", "password": "hidden3"}
    options = SshOptions(host="h", password="hidden1", passphrase="hidden2", jump=(jump,))
    backend = SshBackend(options)
    assert "hidden" not in repr(options) + str(backend.handle(SandboxSpec(), "a" * 16))
