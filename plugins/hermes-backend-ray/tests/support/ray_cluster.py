"""The tests' client of the cluster, which the first test worker starts and all workers of one run share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

_START: Final = 300.0
"""Seconds in which three nodes must start on a busy machine."""

PERMANENT: Final = {"permanent": 1.0}
"""Option `resources` of a test that must not get a node which another worker's test adds and then kills."""

MACHINES: Final = ("127.0.0.2", "127.0.0.3")
"""Other addresses of this machine, which Ray takes for other machines; tests start and kill nodes there."""


class RayCluster:
    """A running cluster; `address` is the one for `ray.init` and the option `address`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self.address: str = json.loads(self._lines.readline())

    @classmethod
    def shared(cls, folder: Path) -> Self:
        """Connect to the cluster of this folder; start it if there is none."""
        path = folder / "ray.sock"
        with (folder / "ray.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = _connect(path)
            if connection is None:
                connection = _start(path, folder / "ray.log")
            # The cluster counts this client only once it has sent the address, and could end before.
            return cls(connection)

    def _ask(self, **question: Any) -> Any:
        self._connection.sendall(json.dumps(question).encode() + b"\n")
        answer = json.loads(self._lines.readline())
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def add_node(self, **options: Any) -> str:
        """Start a node for one test and return its id; `options` are those of `Cluster.add_node`."""
        return str(self._ask(add=options))

    def kill_node(self, node_id: str) -> None:
        """Kill every process of a node at once."""
        self._ask(kill=node_id)

    def nodes(self) -> list[str]:
        """Return the ids of the running nodes, the head's first."""
        found = self._ask(nodes=True)
        return [found["head"], *(node for node in found["all"] if node != found["head"])]

    def close(self) -> None:
        """Disconnect; the cluster ends after its last client."""
        self._lines.close()
        self._connection.close()


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _start(path: Path, log: Path) -> socket.socket:
    program = Path(__file__).with_name("cluster_process.py")
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(program), str(path)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(("COV_", "RAY_"))},
        )  # fmt: skip
    end = time.monotonic() + _START
    while time.monotonic() < end and process.poll() is None:
        connection = _connect(path)
        if connection is not None:
            # It outlives this process if others use it, so this process does not wait for its end.
            process.returncode = 0
            return connection
        time.sleep(0.05)
    raise RuntimeError(f"the cluster did not start in {_START:g} s:\n{log.read_text(errors='replace')[-2000:]}")
