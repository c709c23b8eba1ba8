"""A real vLLM in a process group of its own, as tests start, kill and ask it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

MODEL_NAME: Final = "tiny"
MAX_MODEL_LEN: Final = 4096
# Seconds; they only end a hang. A start takes 20 to 60 s.
_START_LIMIT: Final = 400.0
_IDLE_LIMIT: Final = 60.0
_GAUGES: Final = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_LOG_TAIL: Final = 3000


class Engine:
    """One server of one model on a port that it keeps; a context manager that starts and kills it."""

    def __init__(self, python: Path, model: Path, log: Path, flags: Sequence[str] = ()) -> None:
        self.tokenizer_dir = model
        self.model_name = MODEL_NAME
        self.python = python
        self.flags = tuple(flags)
        self.port = _free_port()
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """The server's root, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Whether its process lives; it may not answer yet."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server, and return when it answers."""
        if not self.is_alive:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [self.python, "-m", "vllm.entrypoints.cli.main", "serve", self.tokenizer_dir, *self._arguments()],
                    env={**os.environ, **_variables(self._log.parent)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        if not wait_until(self._is_settled, _START_LIMIT) or not self.is_alive:
            self.kill()
            raise AssertionError(f"Expected vLLM to answer at {self.url}, got:\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill its whole process group, as a machine that goes away would."""
        if self._process is not None:
            # Also where the server has ended by itself: its workers may be left.
            signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again on the same port."""
        self.kill()
        self.start()

    def running_requests(self) -> int:
        """Return how many requests the engine's own metrics call running or waiting."""
        found = _GAUGES.findall(self.get("/metrics"))
        assert len(found) >= 2, "Expected gauges of running and waiting requests in /metrics, got none"
        return int(sum(map(float, found)))

    def becomes_idle(self, seconds: float = _IDLE_LIMIT) -> bool:
        """Wait until no request runs or waits; False when the time is up."""
        return wait_until(lambda: self.running_requests() == 0, seconds)

    def becomes_busy(self, requests: int = 1, seconds: float = _IDLE_LIMIT) -> bool:
        """Wait until so many requests run or wait; False when the time is up."""
        return wait_until(lambda: self.running_requests() >= requests, seconds)

    def get(self, path: str) -> str:
        """Return what the server answers to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def log_tail(self) -> str:
        """Return the end of what the server has written."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]

    def _arguments(self) -> list[str]:
        return [
            *("--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", MODEL_NAME),
            *("--dtype", "float32", "--max-model-len", str(MAX_MODEL_LEN), "--max-logprobs", "5"),
            *("--enforce-eager", "--enable-scale-out", *self.flags),
        ]

    def _is_settled(self) -> bool:
        """Say whether it answers, or never will."""
        if not self.is_alive:
            return True
        try:
            self.get("/health")
        except OSError:
            return False
        return True


def signal_group(process: int, number: signal.Signals) -> None:
    """Signal a process group, which may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, number)


def _variables(folder: Path) -> dict[str, str]:
    """Return what keeps the server small, quiet, and away from the network."""
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again, less and less often, until a condition holds; False when the time is up."""
    end, pause = time.monotonic() + seconds, 0.02
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(0.5, pause * 1.3)
    return True
