"""Containers of the stand-in: real processes in separate namespaces, with real limits and capabilities."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import ControlGroups, Group, plan_limits

_SYSTEM = [
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--ro-bind", "/etc", "/etc",
    "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--dir", "/var", "--dir", "/home",
]  # fmt: skip
_BOX = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--as-pid-1", "--cap-add", "ALL"]


class Container:
    """The docker driver's container, built with bubblewrap, nsenter and setpriv.

    Args:
        name: The allocation's id.
        task: Its task's description.
        groups: Where control groups are made.
    """

    def __init__(self, name: str, task: Mapping[str, Any], groups: ControlGroups) -> None:
        self._task = task
        self._config = task["Config"]
        self._name = name
        self._folder = Path(tempfile.mkdtemp(prefix="nomad-standin-"))
        self._group = self._limits(groups)
        self._process: asyncio.subprocess.Process | None = None
        self._first = 0

    def _limits(self, groups: ControlGroups) -> Group:
        pids = self._config.get("pids_limit")
        spec = SandboxSpec(memory_mb=self._task["Resources"]["MemoryMB"], pids=None if pids is None else int(pids))
        planned = plan_limits(spec, groups, f"standin-{self._name}", per_process=True)
        self._directories = groups.paths(f"standin-{self._name}", planned.controllers)
        group = Group(self._directories)
        group.create(planned.settings)
        return group

    @property
    def is_contained(self) -> bool:
        """Whether it is a container, and not a process of the node's own."""
        return bool(self._task["Driver"] == "docker")

    async def start(self) -> None:
        """Start the first process."""
        if not self.is_contained:
            self._process = await asyncio.create_subprocess_exec(
                self._config["command"], *self._config["args"], start_new_session=True, stdin=asyncio.subprocess.DEVNULL
            )
            return
        for name in ("root", "tmp"):
            (self._folder / name).mkdir()
        (self._folder / "tmp").chmod(0o1777)
        facts, facts_in = os.pipe()
        network = ["--unshare-net"] if self._config["network_mode"] == "none" else []
        mounts = ["--bind", f"{self._folder}/root", "/workspace", "--bind", f"{self._folder}/tmp", "/tmp"]
        words = [*self._config["entrypoint"], *self._config.get("args", [])]
        try:
            self._process = await asyncio.create_subprocess_exec(
                "bwrap", *_SYSTEM, *mounts, *_BOX, *network, "--info-fd", str(facts_in), "--", *words,
                pass_fds=(facts_in,), stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(facts_in)
        with os.fdopen(facts, "rb") as said:
            self._first = json.loads(await asyncio.to_thread(said.read))["child-pid"]
        self._group.add(self._first)

    def entering(self, command: list[str]) -> list[str]:
        """Return what runs a command inside, in its control groups and with its capabilities."""
        if not self.is_contained:
            return command
        join = "".join(f"echo $$ > {path}/cgroup.procs && " for path in self._directories)
        allowed = ",".join(f"+{name.lower()}" for name in self._config.get("cap_add", ()))
        inside = ["nsenter", "-t", str(self._first), "-m", "-p", "-n", "-i", "-u", "--"]
        limited = ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set=-all,{allowed}"]
        return ["/bin/sh", "-c", f'{join}exec "$@"', "sh", *inside, *limited, *command]

    async def ended(self) -> int:
        """Wait for the first process to end."""
        assert self._process is not None
        return await self._process.wait()

    async def kill(self) -> None:
        """End all that runs inside, and remove it."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            await self._process.wait()
        await self._group.end()
        await self._group.remove()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
