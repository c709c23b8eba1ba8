"""A real sshd on a loopback port, with separate keys and configuration."""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

# SHLVL: bash reads no ~/.bashrc then, which takes a tenth of a second where there is a long one.
_CONFIG = """\
{extra}
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile {folder}/pid
AuthorizedKeysFile {folder}/authorized
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
UseDNS no
MaxStartups 100
SetEnv SHLVL=2
Subsystem sftp internal-sftp
"""


def make_key(path: Path, *, passphrase: str = "", kind: str = "ed25519") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


class SshServer:
    """One sshd that lets the user of the tests in, by the key `key`."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.key = make_key(folder / "key")
        make_key(folder / "host")
        self.authorize(self.key)
        self.known_hosts = folder / "known_hosts"
        self._extra = extra
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def authorize(self, key: Path) -> None:
        public = key.with_name(key.name + ".pub").read_text()
        with (self.folder / "authorized").open("a") as file:
            file.write(public)

    def start(self) -> SshServer:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        text = _CONFIG.format(port=self.port, folder=self.folder, extra=self._extra)
        (self.folder / "config").write_text(text)
        with (self.folder / "log").open("ab") as log:
            command = [find_sshd(), "-D", "-e", "-f", str(self.folder / "config")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._await_banner()
        self.learn()
        return self

    def _await_banner(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 60) as sock:
                if sock.recv(4) == b"SSH-":
                    return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.01)

    def learn(self) -> None:
        """Write the host key to `known_hosts`."""
        kind, key, *_ = (self.folder / "host.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def change_host_key(self) -> None:
        """Start again with another host key; `known_hosts` still has the old one."""
        known = self.known_hosts.read_text()
        self.stop()
        for name in ("host", "host.pub"):
            (self.folder / name).unlink()
        make_key(self.folder / "host")
        self.start()
        self.known_hosts.write_text(known)

    @property
    def login(self) -> dict[str, object]:
        return {"host": "127.0.0.1", "port": self.port, "user": getpass.getuser(), "key": str(self.key)}

    @property
    def options(self) -> dict[str, object]:
        return {**self.login, "known_hosts": str(self.known_hosts), "connect_timeout": 60.0}

    def sessions(self) -> list[int]:
        """Return the processes that serve the connections."""
        assert self._process is not None
        return [pid for pid, name in _descendants(self._process.pid) if name.startswith("sshd")]

    def agents(self) -> list[int]:
        """Return the agents started through it: children of sshd that are not sshd."""
        assert self._process is not None
        return [pid for pid, name in _descendants(self._process.pid, "sshd") if not name.startswith("sshd")]

    def signal_sessions(self, number: int) -> None:
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        if self._process is None:
            return
        sessions, process, self._process = self.sessions(), self._process, None
        process.kill()
        process.wait()
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def find_sshd() -> str:
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    assert found is not None
    return found  # sshd insists on being called by its full path


def _free_port() -> int:
    """Return a free port from below the kernel's ephemeral range."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port


def _descendants(root: int, within: str = "") -> list[tuple[int, str]]:
    """Return the descendants of a process with names, descending only into names that start with `within`."""
    children: dict[int, list[tuple[int, str]]] = {}
    for folder in [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            head, _, tail = (folder / "stat").read_text().rpartition(")")
            children.setdefault(int(tail.split()[1]), []).append((int(folder.name), head.partition("(")[2]))
    found = [(root, within)]
    for parent, name in found:
        if name.startswith(within):
            found += children.get(parent, [])
    return found[1:]
