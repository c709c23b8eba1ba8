"""The tests' handle of the stand-in: a separate process, controlled over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class StandIn:
    """A Nomad on a loopback port."""

    def __init__(self) -> None:
        program = [sys.executable, str(Path(__file__).parent / "nomad_server.py")]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip().decode()
        assert port, "the stand-in did not start"
        self.address = f"http://127.0.0.1:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and all its containers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def faults(self, **faults: Any) -> None:
        """Have these faults and no others."""
        self._send("faults", faults)

    def forget(self) -> None:
        """Clear the errors that the test expected."""
        self._send("forget", {})

    def order(self, what: str, allocation: str) -> None:
        """`drop` its connections, `kill` its first process, `evict` it, or `lose` its node."""
        self._send(what, {"allocation": allocation})

    def tell(self, what: str) -> Any:
        """Return its errors, the requests it has seen, its jobs or its allocations."""
        with urllib.request.urlopen(f"{self.address}/standin/{what}", timeout=60) as answer:
            return json.load(answer)

    def running(self) -> list[dict[str, Any]]:
        """Return the allocations that run."""
        return [found for found in self.tell("allocations") if found["ClientStatus"] == "running"]

    def _send(self, what: str, body: Any) -> None:
        request = urllib.request.Request(f"{self.address}/standin/{what}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60):
            pass
