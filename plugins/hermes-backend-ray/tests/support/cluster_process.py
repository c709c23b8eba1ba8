"""A process that runs a real Ray cluster of three nodes while at least one client is connected to its socket.

Arguments: the socket's path. It sends the cluster's address to each client, then answers one JSON line per request
line: `{"add": {node options}}`, `{"kill": node_id}`, `{"nodes": true}`. It stops when the last connection has closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import shutil
import signal
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, Protocol

NODES: Final = 3
_PERMANENT: Final = {"permanent": 1e6}
"""A resource of these nodes that nodes added by tests do not have; `PERMANENT` in ray_cluster.py requests it."""
_STORE: Final = 80 << 20
"""Bytes of each node's object store; Ray's own minimum is slightly less."""
_LINGER: Final = 2.0
"""Seconds without a client after which the cluster ends; another worker of the same run may be about to connect."""
_NOBODY: Final = 120.0
"""Seconds in which the first client must connect."""


class Question(Protocol):
    """A request to the main thread, the only one in which Ray starts nodes."""

    def __call__(self, held: Held) -> None:
        """Handle the request."""


class Held:
    """The cluster, its nodes by id, the number of connected clients, and their requests."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.nodes = {node.node_id: node for node in (cluster.head_node, *cluster.worker_nodes)}
        self.head = cluster.head_node.node_id
        self.guests = 0
        self.questions: queue.SimpleQueue[Question] = queue.SimpleQueue()

    def come(self) -> None:
        """Count a new client."""
        self.guests += 1

    def leave(self) -> None:
        """Count a client that has disconnected."""
        self.guests -= 1

    def serve(self, path: Path) -> None:
        """Handle requests until no client is connected; the socket's path has been removed by then."""
        patience = _NOBODY
        while True:
            try:
                self.questions.get(timeout=None if self.guests else patience)(self)
            except queue.Empty:
                if self._left(path):
                    return
            patience = _LINGER

    def _left(self, path: Path) -> bool:
        """Remove the path unless a client has connected meanwhile; a client holds the lock until it is counted."""
        with path.with_name("ray.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.questions.empty():
                path.unlink(missing_ok=True)
                return True
        return False

    def answer(self, asked: dict[str, Any]) -> Any:
        """Handle one request line."""
        if "add" in asked:
            node = self.cluster.add_node(**{"object_store_memory": _STORE, **asked["add"]})
            self.nodes[node.node_id] = node
            return node.node_id
        if "kill" in asked:
            self.cluster.remove_node(self.nodes.pop(asked["kill"]), allow_graceful=False)
            return True
        return {"head": self.head, "all": list(self.nodes)}


class Guest(socketserver.StreamRequestHandler):
    """The connection of one client."""

    server: Server

    def handle(self) -> None:
        """Send the address, then answer requests until the connection closes."""
        held = self.server.held
        held.questions.put(Held.come)
        with contextlib.suppress(OSError):
            self._say(held.cluster.address)
            for line in self.rfile:
                self._say(self._ask(json.loads(line)))
        held.questions.put(Held.leave)

    def _ask(self, asked: dict[str, Any]) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def question(held: Held) -> None:
            try:
                answers.put(held.answer(asked))
            except Exception as error:  # noqa: BLE001 - the client fails with it
                answers.put({"error": f"{type(error).__name__}: {error}"})

        self.server.held.questions.put(question)
        return answers.get()

    def _say(self, answer: Any) -> None:
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves each connection in a thread."""

    daemon_threads = True
    held: Held


def main(path: str) -> None:
    """Start the cluster, serve, and clean up."""
    # Short, because Ray creates sockets with long names in it; private, because Ray's default is shared by all users.
    folder = tempfile.mkdtemp(prefix="hr")
    os.environ["RAY_TMPDIR"] = folder
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"})
    # Start workers on demand, not one per processor in advance: each start takes a second of processor time.
    os.environ.update({"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"})
    # Signals of a terminal are meant for the tests; this process ends after them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hold(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hold(path: str) -> None:
    """Run the cluster until no client is connected."""
    from ray.cluster_utils import Cluster

    shared = {"num_cpus": 2, "object_store_memory": _STORE, "resources": _PERMANENT}
    cluster = Cluster(initialize_head=True, head_node_args={**shared, "include_dashboard": False})
    try:
        for _ in range(NODES - 1):
            cluster.add_node(**shared, wait=False)
        cluster.wait_for_nodes()
        with Server(path + ".new", Guest) as server:
            server.held = Held(cluster)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            Path(path + ".new").rename(path)
            server.held.serve(Path(path))
            server.shutdown()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
