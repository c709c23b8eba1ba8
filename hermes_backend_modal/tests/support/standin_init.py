"""The first process of a stand-in sandbox: starts programs for the service, reaps, and nothing else.

Run by path with `python3 -I -S`: the standard library only. Its argument is a SOCK_SEQPACKET descriptor; each message
starts a program (with its three standard streams as descriptors) or sends it a signal. The end of the socket is the end
of the sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import select
import signal
import socket
import sys

LIMIT = 1 << 18
MOST = 2 << 30
"""Bytes of memory a program can ask for, should nobody come to look how much all of them have."""


def become(order: dict, fds: list) -> None:
    """Turn the forked child into the program; never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        os.closerange(3, 256)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"exec: {order['argv'][0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def memory(limit: int) -> bool:
    """Tell whether all processes together hold more than `limit` megabytes."""
    total = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            total += int((process / "statm").read_text().split()[1]) * 4096 if process.name != "1" else 0
    return total > limit << 20


def main() -> None:
    """Serve until the socket ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    limit = int(sys.argv[2])
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [], 0.02 if limit else None)
        if limit and memory(limit):
            control.send(json.dumps({"id": None, "oom": True}).encode())
            return
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if not pid:
                        break
                    name = running.pop(pid, None)
                    if name is not None:
                        control.send(json.dumps({"id": name, "code": os.waitstatus_to_exitcode(status)}).encode())
        if control in ready:
            data, fds, _, _ = socket.recv_fds(control, LIMIT, 3)
            if not data:
                return
            order = json.loads(data)
            if "signal" in order:
                for pid in [pid for pid, name in running.items() if name == order["id"]]:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, order["signal"])
                continue
            pid = os.fork()
            if pid == 0:
                become(order, fds)
            running[pid] = order["id"]
            for fd in fds:
                os.close(fd)


main()
