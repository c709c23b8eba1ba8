"""Measure the start of a run, from the start of its process to its first model call; prints JSON.

Usage: python -m benchmarks.run_start [--rounds N]

A server in this process notes when the first request for a completion arrives, and how much processor time the run has
had by then. Beside it, in the same rounds: a bare interpreter, the libraries that a run cannot do without, and the
commands that end before a run begins. The rounds are interleaved and the minimum of each counts, so that other load
affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from benchmarks.rollouts.mock_server import MODEL_NAME

TASKS: Final = "tasks.jsonl"
BARE: Final = "bare"
RUNS: Final[Mapping[str, tuple[str, ...]]] = {
    "rollouts without a sandbox": ("--isolation", "none", "--enabled-toolsets", ""),
    "rollouts in sandboxes": ("--isolation", "none"),
}
TARGETS: Final = {"first_call_s": 0.4}
_ANSWER: Final = {
    "id": "chatcmpl-0",
    "object": "chat.completion",
    "created": 0,
    "model": MODEL_NAME,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds since a process was started: on the wall, and of a processor in that process alone."""

    wall: float
    processor: float


@dataclass(slots=True)
class FirstCall:
    """The first request for a completion since the last `expect`."""

    pid: int = 0
    began: float = 0.0
    found: Spent | None = None
    known: threading.Event = field(default_factory=threading.Event)

    def expect(self, pid: int, began: float) -> None:
        """Wait for the first request of another process."""
        self.pid, self.began, self.found = pid, began, None
        self.known.set()

    def note(self) -> None:
        """Note the time, unless a request came before this one."""
        now = time.perf_counter()
        self.known.wait()
        if self.found is None:
            self.found = Spent(wall=now - self.began, processor=processor_seconds(self.pid))


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process that runs, by its own clock: what clock_getcpuclockid(3) computes."""
    return time.clock_gettime(~pid << 3 | 2)


@contextmanager
def serving(first: FirstCall) -> Iterator[str]:
    """Answer every request at once while the block runs; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.answer({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

        def do_POST(self) -> None:
            first.note()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(_ANSWER)

        def answer(self, value: Mapping[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


def commands(url: str) -> dict[str, list[str]]:
    """Return the commands to measure, by name."""
    hermes = [sys.executable, str(Path(sysconfig.get_path("scripts")) / "hermes-core")]
    run = [*hermes, "run", TASKS, "--model", url, "--model-name", MODEL_NAME, "--no-report"]
    return {
        BARE: [sys.executable, "-c", "pass"],
        "import pydantic": [sys.executable, "-c", "import pydantic"],
        "import aiohttp": [sys.executable, "-c", "import aiohttp"],
        "hermes-core --version": [*hermes, "--version"],
        "hermes-core run --print-config": [*hermes, "run", TASKS, "--print-config"],
        **{name: [*run, *flags] for name, flags in RUNS.items()},
    }


def spend(command: list[str], folder: Path, first: FirstCall) -> tuple[Spent, Spent | None]:
    """Run a command to its end; return what it took in all, and up to its first model call if it made one."""
    # The first round writes the byte code, which an installed package has.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    actions = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    first.known.clear()
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
    first.expect(pid, began)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    os.close(log)
    if status:
        raise RuntimeError(f"{' '.join(command)}: {(folder / 'log').read_text(encoding='utf-8')}")
    return Spent(wall=wall, processor=usage.ru_utime + usage.ru_stime), first.found


def measure(rounds: int, folder: Path) -> tuple[dict[str, Spent], dict[str, Spent]]:
    """Return the least that every command took, and that every run took to its first model call."""
    (folder / TASKS).write_text("".join(json.dumps({"id": id_, "prompt": "Say hi."}) + "\n" for id_ in "ab"))
    whole: dict[str, list[Spent]] = {}
    starts: dict[str, list[Spent]] = {}
    first = FirstCall()
    with serving(first) as url:
        for round_ in range(rounds + 1):
            for name, command in commands(url).items():
                out = ["--out", str(folder / f"{name} {round_}")] if name in RUNS else []
                took, start = spend([*command, *out], folder, first)
                if round_:
                    whole.setdefault(name, []).append(took)
                if round_ and start is not None:
                    starts.setdefault(name, []).append(start)
    return all_least(whole), all_least(starts)


def all_least(found: Mapping[str, list[Spent]]) -> dict[str, Spent]:
    """Return the least wall time and the least processor time of each command."""
    return {
        name: Spent(wall=min(one.wall for one in all_), processor=min(one.processor for one in all_))
        for name, all_ in found.items()
    }


def report(rounds: int, whole: Mapping[str, Spent], starts: Mapping[str, Spent]) -> dict[str, Any]:
    """Return the figures as JSON values, with ratios to the bare interpreter of the same rounds."""
    bare = whole[BARE].processor

    def figures(spent: Spent) -> dict[str, float]:
        return {
            "wall_s": round(spent.wall, 4),
            "processor_s": round(spent.processor, 4),
            "processor_ratio_to_bare": round(spent.processor / bare, 1),
        }

    return {
        "benchmark": "run_start",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "rounds": rounds,
        "to_the_end": {name: figures(spent) for name, spent in whole.items()},
        "to_the_first_call": {name: figures(spent) for name, spent in starts.items()},
        "load_average": round(os.getloadavg()[0], 1),
        "targets": TARGETS,
        "met": all(spent.wall <= TARGETS["first_call_s"] for spent in starts.values()),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    parser.add_argument("--rounds", type=int, default=10, help="starts of each command (%(default)s)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        whole, starts = measure(rounds, Path(folder))
    print(json.dumps(report(rounds, whole, starts), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
