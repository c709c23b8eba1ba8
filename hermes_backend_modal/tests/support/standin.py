"""The tests' handle of the stand-in: its process, address and commands."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("standin_server.py")


class StandIn:
    """A running stand-in; `options` are for a backend that uses it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._turn = threading.Lock()
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.options = {"server_url": self.url, "token_id": "ak-one", "token_secret": "as-one"}

    def ask(self, do: str = "tell", **order: Any) -> dict[str, Any]:
        """Send a command and return the stand-in's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def running(self, **tags: str) -> list[dict[str, Any]]:
        """Return the sandboxes that have not ended and carry these tags."""
        found = [sandbox for sandbox in self.ask()["sandboxes"] if not sandbox["status"]]
        return [sandbox for sandbox in found if tags.items() <= sandbox["tags"].items()]

    def close(self) -> None:
        """End it and everything in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()
