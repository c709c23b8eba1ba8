"""Backend `local`: processes of this machine, plain or inside bubblewrap."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

from hermes_core.contracts.errors import BackendError, SandboxLostError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.sandbox import bubblewrap
from hermes_core.sandbox.agent.processes import look_into, read_marker, read_process, read_table, send, with_descendants
from hermes_core.sandbox.backend import ENVIRONMENT, AgentBackend
from hermes_core.sandbox.cgroups import PREFIX, ControlGroups, Controller, Group
from hermes_core.sandbox.client import AgentStream
from hermes_core.sandbox.completion import complete
from hermes_core.sandbox.confining import start_confined
from hermes_core.sandbox.declaration import LOCAL
from hermes_core.sandbox.descriptors import exhausted, failure, run_program
from hermes_core.sandbox.host import SandboxHost
from hermes_core.sandbox.leases import Lease
from hermes_core.sandbox.limits import Limits, plan_limits
from hermes_core.sandbox.ramdisk import mount_sized, unmount
from hermes_core.sandbox.source import PYTHON_FLAGS
from hermes_core.sandbox.spawning import AgentProcess, kill_and_wait, read_all
from hermes_core.specs import BackendSpec

_LEASE: Final = "lease.json"
_NOBODY: Final = 65534
_SCRATCH: Final = 64 << 20
"""Bytes of /dev/shm and of the agent's own directory each, where the disk is limited."""
_GRACE: Final = 6.0
"""Seconds an agent gets to end everything by itself; it gives up after five."""


class LocalOptions(BaseModel):
    """Options of backend `local`."""

    model_config = ConfigDict(extra="forbid")

    root_dir: Path | None = None
    """Where the sandboxes' directories are made; the system's temporary directory if not given."""
    python: str | None = None
    """Python 3.8 or newer for the agent; the caller's own without isolation, the system's inside bubblewrap."""
    bash: str = "/bin/bash"
    path: str = ENVIRONMENT["PATH"]
    """PATH of the commands."""
    setup_timeout: float = 30.0
    patience: float = 20.0
    """Seconds of silence after which an agent counts as lost."""
    uid: int = _NOBODY
    """User inside bubblewrap when the caller is root; 0 to stay root (of an unprivileged namespace)."""
    cgroup: Path | None = None
    """Control group (version 2) below which those of the sandboxes are made; found by trying if not given."""
    memory_limit: Literal["per_sandbox", "per_process"] = "per_sandbox"
    """`per_process` accepts, where no control group can be used, that `memory_mb` holds for each process by itself."""


class LocalBackend(AgentBackend):
    """Sandboxes on this machine.

    Isolation `none` separates nothing but directories and environments: commands run as the caller's user. `bwrap`
    shows a read-only /usr, private /tmp, /home and /workspace, namespaces of its own, and no capabilities.
    """

    declaration: ClassVar[BackendSpec] = LOCAL
    Options = LocalOptions

    def __init__(self, options: LocalOptions | None = None) -> None:
        super().__init__()
        self.options = options or LocalOptions()
        self.setup_timeout = self.options.setup_timeout
        self.patience = self.options.patience
        self._groups = ControlGroups(self.options.cgroup)
        self._bubblewrap = ""

    def refuse(self, spec: SandboxSpec) -> None:
        """Refuse also what only bubblewrap could enforce."""
        super().refuse(spec)
        if spec.network != "full" and spec.isolation == "none":
            raise self._refusal(
                f"network {spec.network!r} at isolation 'none'", '--isolation bwrap (open_sandbox: isolation="bwrap")'
            )
        if spec.disk_mb is not None and spec.isolation == "none":
            raise self._refusal("limit disk_mb at isolation 'none'", "--isolation bwrap, or leave disk_mb out")

    async def probe(self, spec: SandboxSpec) -> None:
        """Open a sandbox of this kind and run a command in it."""
        if spec.isolation == "bwrap" and shutil.which("bwrap", path=ENVIRONMENT["PATH"]) is None:
            raise SandboxRefusedError("isolation 'bwrap' needs the program bwrap", hint="apt-get install bubblewrap")
        try:
            async with await self.open(spec) as sandbox:
                result = await sandbox.exec("true", timeout=self.setup_timeout)
        except SandboxRefusedError:
            raise
        except (BackendError, SandboxLostError) as error:
            hint = "apt-get install bubblewrap, or allow unprivileged user namespaces"
            raise SandboxRefusedError(
                f"isolation {spec.isolation!r} does not work here: {error.message}",
                hint=hint if spec.isolation == "bwrap" else error.hint,
            ) from error
        if result.exit_code != 0:
            raise BackendError(f"bash does not work in a sandbox: {result.output.strip()}")

    def handle(self, spec: SandboxSpec, sandbox_id: str) -> Mapping[str, Any]:
        """Name the directory and the control groups, which is enough to find everything again."""
        paths = self._group_paths(self._plan(spec, sandbox_id), sandbox_id, spec)
        return {"sandbox_id": sandbox_id, "root": str(self._root(sandbox_id)), "groups": [str(path) for path in paths]}

    def _root(self, sandbox_id: str) -> Path:
        return (self.options.root_dir or Path(tempfile.gettempdir())) / f"{PREFIX}{sandbox_id}"

    def _plan(self, spec: SandboxSpec, sandbox_id: str) -> Limits:
        per_process = self.options.memory_limit == "per_process"
        return plan_limits(spec, self._groups, sandbox_id, per_process=per_process)

    def _group_paths(self, limits: Limits, sandbox_id: str, spec: SandboxSpec) -> list[Path]:
        # Without namespaces a group is the one thing that no process of the sandbox gets out of by accident.
        tracking: tuple[Controller, ...] = ("pids",) if spec.isolation == "none" else ()
        return self._groups.paths(sandbox_id, (*limits.controllers, *tracking))

    async def create(self, spec: SandboxSpec, sandbox_id: str) -> SandboxHost:
        """Make the sandbox's directories and its control group."""
        root = self._root(sandbox_id)
        uid = self.options.uid if spec.isolation == "bwrap" and os.geteuid() == 0 else os.geteuid()
        gid = uid if os.geteuid() == 0 and uid else os.getegid()
        limits = self._plan(spec, sandbox_id)
        paths = self._group_paths(limits, sandbox_id, spec)
        group = Group(paths) if paths else None
        try:
            await asyncio.to_thread(_make_directories, root, uid, gid, limits.disk)
            await asyncio.to_thread(_write_copy, root, self._lease(spec, sandbox_id))
            if group is not None:
                group.create(limits.settings)
        except OSError as error:
            await delete_tree(root)
            hint = "set the backend's option root_dir to a writable directory"
            raise failure("the sandbox's directory or control group cannot be made", error, hint) from error
        except SandboxRefusedError:
            await delete_tree(root)
            raise
        if spec.isolation == "bwrap":
            network = spec.network == "full"
            self._bubblewrap = self._bubblewrap or await asyncio.to_thread(bubblewrap.version)
            host = _BubblewrapHost(root, sandbox_id, self.options, limits, group, network=network, uid=uid)
            host.provenance = {**host.provenance, "runtime": self._bubblewrap}
            return host
        return _PlainHost(root, sandbox_id, self.options, limits, group)

    async def sweep(self, *, remove: bool = True) -> list[str]:
        """Find the directories of dead owners; each holds a copy of its lease."""
        parent = self.options.root_dir or Path(tempfile.gettempdir())
        abandoned = await asyncio.to_thread(_abandoned, parent)
        if remove:
            self._groups.discard_probes()
            for lease in abandoned:
                await self.reclaim(lease.handle)
        return [lease.sandbox_id for lease in abandoned]

    async def reclaim(self, handle: Mapping[str, Any]) -> None:
        """Kill and delete what a killed process left behind."""
        root = Path(handle["root"])
        if root.name != f"{PREFIX}{handle['sandbox_id']}":
            raise BackendError(f"{root} is not the directory of sandbox {handle['sandbox_id']}; nothing was deleted")
        group = _group_of(handle)
        await _kill_marked(handle["sandbox_id"], root)
        if group is not None:
            await group.remove()
        await delete_tree(root)


def _group_of(handle: Mapping[str, Any]) -> Group | None:
    paths = [Path(path) for path in handle.get("groups", ())]
    for path in paths:
        if path.name != f"{PREFIX}{handle['sandbox_id']}":
            raise BackendError(f"{path} is not the group of sandbox {handle['sandbox_id']}; nothing was removed")
    return Group(paths) if paths else None


class _LocalHost(SandboxHost):
    """What both levels share: a directory, and one agent process at a time."""

    def __init__(self, root: Path, sandbox_id: str, options: LocalOptions, limits: Limits, group: Group | None) -> None:
        self.bash = options.bash
        self.provenance = {"limits": dict(limits.enforced)} if limits.enforced else {}
        self._root = root
        self._id = sandbox_id
        self._options = options
        self._limits = limits
        self._group = group
        self._agent: AgentProcess | None = None

    async def _start(
        self, argv: Sequence[str], path: str, *, uid: int | None = None, pass_fds: Sequence[int] = ()
    ) -> AgentProcess:
        environment = {"PATH": path, "LANG": "C.UTF-8", "HERMES_SANDBOX": f"{self._id}.0"}
        if self._group is None and self._limits.address_space is None:
            return await AgentProcess.start(argv, environment=environment, uid=uid, pass_fds=pass_fds)
        return await start_confined(
            argv,
            group=self._group,
            address_space=self._limits.address_space,
            environment=environment,
            bash=self.bash,
            uid=uid,
            pass_fds=pass_fds,
        )

    async def destroy(self) -> None:
        if self._group is not None:
            await self._group.remove()
        await delete_tree(self._root)


class _PlainHost(_LocalHost):
    def __init__(self, root: Path, sandbox_id: str, options: LocalOptions, limits: Limits, group: Group | None) -> None:
        super().__init__(root, sandbox_id, options, limits, group)
        self.workspace = str(root / "workspace")
        self.environment = {"PATH": options.path, "HOME": str(root / "home"), "TMPDIR": str(root / "tmp")}
        self._lost_track = False

    async def start_agent(self) -> AgentStream:
        if self._lost_track:
            raise SandboxLostError(
                "the agent was killed; not everything it started can be found",
                hint="--isolation bwrap keeps what runs in a sandbox together",
            )
        # A new one for every agent: what a command has put into the last one cannot pass for saved state.
        self.state_dir = str(self._root / f"state-{os.urandom(8).hex()}")
        await asyncio.to_thread(_restore_directories, self._root)
        python = self._options.python or sys.executable
        self._agent = await self._start([python, *PYTHON_FLAGS], self._options.path)
        return self._agent.stream

    async def stop_all(self) -> None:
        agent, self._agent = self._agent, None
        if agent is None:
            return
        agent.stream.writer.close()
        # An agent that ended well has seen its last descendant die. One that was killed has lost them.
        if not await agent.end(_GRACE):
            self._lost_track = self._group is None
            await _kill_marked(self._id, self._root)
        if self._group is not None and not await self._group.end():
            raise BackendError(f"processes of sandbox {self._id} cannot be killed")


class _BubblewrapHost(_LocalHost):
    def __init__(
        self,
        root: Path,
        sandbox_id: str,
        options: LocalOptions,
        limits: Limits,
        group: Group | None,
        *,
        network: bool,
        uid: int,
    ) -> None:
        super().__init__(root, sandbox_id, options, limits, group)
        self.workspace = bubblewrap.WORKSPACE
        self.state_dir = bubblewrap.STATE + "/state"
        self.environment = {"PATH": options.path, "HOME": bubblewrap.HOME, "TMPDIR": "/tmp"}  # noqa: S108 - inside
        self.provenance = {**self.provenance, "uid": uid}
        self._network = network
        self._uid = uid if os.geteuid() == 0 and uid else None
        self._init: int | None = None
        self._frozen = False

    async def freeze(self) -> None:
        self._frozen = True

    async def start_agent(self) -> AgentStream:
        python = self._options.python or shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        try:
            info, writer = os.pipe()
        except OSError as error:
            raise failure("bubblewrap cannot be started", error) from error
        try:
            argv = bubblewrap.command_line(
                [python, *PYTHON_FLAGS],
                self._root,
                network=self._network,
                info_fd=writer,
                frozen=self._frozen,
                scratch_limit=_SCRATCH if self._limits.disk is not None else None,
            )
            self._agent = await self._start(argv, ENVIRONMENT["PATH"], uid=self._uid, pass_fds=(writer,))
        except BackendError:
            os.close(info)
            raise
        except BaseException:
            os.close(info)
            await complete(_kill_marked(self._id, self._root))
            raise
        finally:
            os.close(writer)
        # Empty when bubblewrap failed; its message is kept then, and the stream ends.
        said = await read_all(info, self._options.setup_timeout)
        self._init = _hold(json.loads(said)["child-pid"], self._agent.pid) if said else None
        return self._agent.stream

    async def stop_all(self) -> None:
        agent, self._agent = self._agent, None
        init, self._init = self._init, None
        if agent is None:
            return
        agent.stream.writer.close()
        try:
            if init is None:
                # Cut off while bubblewrap was starting: its child waits for it to set up the namespaces, and would wait
                # for ever as an orphan, since it asks to die with its parent only afterwards.
                await _kill_marked(self._id, self._root, known=agent.pid)
            # The first process of a PID namespace takes all others with it, and is gone only after them.
            elif not await kill_and_wait(init, _GRACE):
                raise BackendError(f"the first process of sandbox {self._id} cannot be killed")
        finally:
            await agent.end(_GRACE)


def _hold(pid: int, parent: int) -> int | None:
    """Return a descriptor that stands for a child of `parent` for ever, as its number does not; None if it has gone."""
    with contextlib.ExitStack() as unless_held, contextlib.suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        unless_held.callback(os.close, held)
        process = read_process(pid)
        if process is not None and process.parent == parent:
            unless_held.pop_all()
            return held
    return None


def _make_directories(root: Path, uid: int, gid: int, disk: int | None) -> None:
    root.mkdir(mode=0o700)
    if disk is not None:
        _limit_disk(root, disk)
    _restore_directories(root)
    bubblewrap.write_accounts(root, uid, gid)
    if uid != os.geteuid():
        for path in (root, *root.iterdir()):
            os.chown(path, uid, gid)


def _write_copy(root: Path, lease: Lease) -> None:
    # As the last thing: whoever reads it may assume that it is whole.
    partial = root / ".lease"
    partial.write_text(json.dumps(lease.to_json()), encoding="utf-8")
    partial.replace(root / _LEASE)


def _abandoned(parent: Path) -> list[Lease]:
    found = []
    for root in parent.glob(f"{PREFIX}*"):
        # Only what this user made: the temporary directory belongs to all.
        with contextlib.suppress(OSError, ValueError):
            copy = root / _LEASE
            if copy.lstat().st_uid == os.geteuid():
                lease = Lease.from_json(copy.read_bytes())
                if lease.handle.get("root") == str(root) and lease.owner() == "dead":
                    found.append(lease)
    return found


def _limit_disk(root: Path, size: int) -> None:
    try:
        mount_sized(root, size)
    except OSError as error:
        raise SandboxRefusedError(
            f"limit disk_mb cannot be enforced here: {error}", hint="run as root, or leave disk_mb out"
        ) from error


def _restore_directories(root: Path) -> None:
    # A command can have deleted them, or put something else in their place; what it destroyed is empty then.
    if root.is_dir() and not root.is_symlink():
        root.chmod(0o700)
    for path in (root, root / "workspace", root / "home", root / "tmp"):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(path.lstat().st_mode):
                continue
            path.unlink()
        path.mkdir(mode=0o700)


async def delete_tree(root: Path) -> None:
    """Delete a directory with all that is in it, however deep or write-protected."""
    await complete(asyncio.to_thread(_delete_tree, root))


def _delete_tree(root: Path) -> None:
    unmount(root)
    for attempt in ("plain", "writable"):
        if attempt == "writable":
            run_program(["chmod", "-R", "u+rwX", "--", str(root)])
        # rm, because Python's own deletion recurses and gives up on a tree a thousand levels deep.
        status, complaint = run_program(["rm", "-rf", "--", str(root)])
        if status == 0:
            return
    raise BackendError(f"{root} cannot be deleted: {complaint}")


async def _kill_marked(sandbox_id: str, root: Path, *, known: int | None = None) -> None:
    # `known` is a child of ours: one that has just been started shows no environment yet.
    clean = 0
    for _ in range(100):
        try:
            clean = 0 if await asyncio.to_thread(_kill_round, sandbox_id, root, known) else clean + 1
        except OSError as error:
            if not exhausted(error):
                raise
        # Twice: what was born while /proc was read is not in the list, nor is its parent, if that has died meanwhile.
        if clean == 2:
            return
        await asyncio.sleep(0.02)
    raise BackendError(f"processes of sandbox {sandbox_id} cannot be killed")


def _kill_round(sandbox_id: str, root: Path, known: int | None) -> bool:
    table = read_table()
    mine = {pid for pid in table if pid == known or _belongs(pid, sandbox_id, root)}
    # Never the caller, should it work inside the sandbox's directory.
    everything = with_descendants(table, mine) - {os.getpid(), os.getppid()}
    for number in (signal.SIGSTOP, signal.SIGKILL):
        send(everything, number)
    return bool(everything)


def _belongs(pid: int, sandbox_id: str, root: Path) -> bool:
    marker = read_marker(pid)
    if marker is not None:
        return marker.partition(".")[0] == sandbox_id
    for folder in look_into(pid):
        with contextlib.suppress(OSError):
            place = (folder / "cwd").readlink()
            return place == root or root in place.parents
    return False
