"""Leases on disk: each sandbox is recorded before it exists, so that leftovers of a killed process can be found.

An owner is dead if this boot and PID namespace no longer has a process of its id and start time, or if it is
proven to have lived on this machine (same host name, same `machine_id`) during an earlier boot. Of every other owner
nothing is known here: it is "elsewhere", its sandboxes are never collected, and only the deadline shows it is late.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from hermes_core.redaction import strip_secrets, validation_message
from hermes_sandbox.agent.processes import read_process
from hermes_sandbox.leases.machine_identity import MachineIdentity
from hermes_sandbox.protocol.fd_limits import system_error

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hermes_core.contracts.leases import LeaseTerms

Owner = Literal["alive", "dead", "elsewhere"]
LEASE_VERSION: Final = 2
_TORN_AFTER: Final = 60.0
"""Seconds after which an unfinished file of a lease counts as abandoned."""


OWNER_FIELDS: Final = ("owner_pid", "owner_start", "node", "machine_id", "boot_id", "pid_namespace")
"""The fields that identify a lease's owner; backends attach them as labels, tags or metadata."""


def owner_is_dead(fields: Mapping[str, str], here: MachineIdentity | None = None) -> bool:
    """Tell whether an owner is known to be dead, by its fields as text; with missing fields nothing is known.

    Only `machine_id` may be missing, as in leases of earlier releases: then nothing is known of earlier boots.
    """
    try:
        owner = Lease(
            sandbox_id="",
            backend="",
            rollout_id=None,
            created=0.0,
            deadline=0.0,
            owner_pid=int(fields["owner_pid"]),
            owner_start=int(fields["owner_start"]),
            node=fields["node"],
            machine_id=fields.get("machine_id", ""),
            boot_id=fields["boot_id"],
            pid_namespace=fields["pid_namespace"],
        )
    except (KeyError, ValueError):
        return False
    return owner.owner(here) == "dead"


def default_lease_dir() -> Path:
    """Return the directory of this user's leases by the environment, for callers that name none."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "hermes-core" / "sandboxes"


def _is_hidden(pid: int) -> bool:
    """Tell whether a process of another user exists that /proc hides (mount option `hidepid`)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        pass
    return False


@functools.lru_cache(maxsize=1)
def _start_of(pid: int) -> int:
    """Return when this process has started, in clock ticks since boot; a fork of it has another id."""
    process = read_process(pid)
    assert process is not None
    return process.start


os.register_at_fork(after_in_child=_start_of.cache_clear)  # a process may get the id of one before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One sandbox and the process that owns it.

    A process id identifies a process only within one boot and PID namespace, and only with its start time.
    `options` are the backend's, without its secrets; `withheld` names those, as in "jump.0.password". The deadline
    is moved while the owner has the sandbox open and its event loop runs.
    """

    sandbox_id: str
    backend: str
    rollout_id: str | None
    created: float
    deadline: float
    owner_pid: int
    owner_start: int
    node: str
    boot_id: str
    pid_namespace: str
    handle: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    lifetime: float = 3600.0
    version: int = 1
    machine_id: str = ""
    """Identifies a machine across its boots; empty if nothing does, and in leases of earlier releases."""

    @classmethod
    def of_this_process(
        cls,
        *,
        sandbox_id: str,
        backend: str,
        rollout_id: str | None,
        deadline: float,
        handle: Mapping[str, Any],
        options: BaseModel | None = None,
    ) -> Self:
        """Return a lease whose owner is the calling process."""
        pid = os.getpid()
        kept, withheld = public_options(options)
        now, here = time.time(), MachineIdentity.now()
        return cls(
            sandbox_id=sandbox_id,
            backend=backend,
            rollout_id=rollout_id,
            created=now,
            deadline=deadline,
            owner_pid=pid,
            owner_start=_start_of(pid),
            **dataclasses.asdict(here),
            handle=handle,
            options=kept,
            withheld=withheld,
            lifetime=max(0.0, deadline - now),
            version=LEASE_VERSION,
        )

    @classmethod
    def of_terms(cls, terms: LeaseTerms) -> Self:
        """Return the lease for a backend's terms, owned by the calling process, without the options' secrets.

        Raises:
            BackendError: This machine's /proc does not identify the process.
        """
        try:
            return cls.of_this_process(
                sandbox_id=terms.sandbox_id,
                backend=terms.backend,
                rollout_id=terms.rollout_id,
                deadline=time.time() + terms.lifetime,
                handle=terms.handle,
                options=terms.options,
            )
        except OSError as error:
            raise system_error("the lease of a sandbox cannot be made", error) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse a lease; raises ValueError with a reason for invalid data."""
        from pydantic import TypeAdapter, ValidationError

        data = json.loads(text)
        version = data.get("version", 1) if isinstance(data, dict) else None
        if isinstance(version, int) and version > LEASE_VERSION:
            raise ValueError(f"a newer release wrote it (version {version}, this one reads up to {LEASE_VERSION})")
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(
                f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {validation_message(first)}"
            ) from error

    @property
    def is_overdue(self) -> bool:
        """Whether its deadline has passed: the owner is dead, or has not moved it in time."""
        return self.deadline < time.time()

    def owner(self, here: MachineIdentity | None = None) -> Owner:
        """Tell whether the owner still lives; "elsewhere" if that cannot be known at `here`, the caller's machine.

        Two machines may have one host name, and two containers of a machine share one boot: neither is proof.
        """
        here = here or MachineIdentity.now()
        if self.node != here.node:
            return "elsewhere"  # a home directory, or an engine, that several machines share
        if self.boot_id != here.boot_id:
            return "dead" if here.is_on(self.node, self.machine_id) else "elsewhere"
        if self.pid_namespace != here.pid_namespace:
            return "elsewhere"
        process = read_process(self.owner_pid)
        if process is None:
            return "elsewhere" if _is_hidden(self.owner_pid) else "dead"
        return "alive" if process.start == self.owner_start and process.alive else "dead"

    def to_json(self) -> dict[str, Any]:
        """Return the lease as plain JSON values."""
        return dataclasses.asdict(self)


def public_options(options: BaseModel | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options that were set, without secrets and variables, and the paths of the secrets."""
    if options is None:
        return {}, ()
    from pydantic_core import to_jsonable_python

    public, withheld = strip_secrets(options.model_dump(exclude_unset=True))
    return to_jsonable_python(public), withheld


def write_lease(path: Path, lease: Lease) -> None:
    """Write a lease to a file that readers see whole: its old content or its new one.

    Raises:
        OSError: It cannot be written; the file is as before.
    """
    partial = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial")
    try:
        # A new file, not one that is there: a sandbox's user, who owns the directory, may have put a link there.
        # Readable only by this user, whatever the umask and whoever made the directory.
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor, whose mode is its own
            file.write(json.dumps(lease.to_json()))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class LeaseBook:
    """A directory of leases, one file each. Its files are checked, never trusted: any of them may be damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, lease: Lease) -> None:
        """Write a lease, atomically."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_lease(self._path(lease.sandbox_id), lease)
        except OSError as error:
            hint = "set XDG_STATE_HOME to a writable directory"
            raise system_error("the lease of a sandbox cannot be written", error, hint) from error

    def extend(self, lease: Lease, deadline: float) -> Lease | None:
        """Move a deadline; returns None and writes nothing if the lease was removed meanwhile."""
        if not self._path(lease.sandbox_id).exists():
            return None
        extended = dataclasses.replace(lease, deadline=deadline)
        self.write(extended)
        return extended

    def remove(self, sandbox_id: str) -> None:
        """Remove a lease; a missing one is not an error."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._path(sandbox_id).unlink()

    def read(self) -> tuple[list[Lease], list[str]]:
        """Return the leases, oldest first, and a line for each file that is not a lease."""
        leases = []
        problems = []
        try:
            paths = sorted(path for path in self.directory.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return [], []
        except OSError as error:
            return [], [f"{self.directory} cannot be read: {error.strerror}"]
        for path in paths:
            try:
                leases.append(self._read(path))
            except FileNotFoundError:
                continue  # removed meanwhile: its owner has finished, or another process has collected it
            except ValueError as error:
                problems.append(f"{path} is not a lease: {error}")
            except OSError as error:
                problems.append(f"{path} cannot be read: {error.strerror}")
        return sorted(leases, key=lambda lease: lease.created), problems

    def dead(self) -> tuple[list[Lease], list[str]]:
        """Return the leases of dead processes, and a line for each file that is not a lease."""
        self.discard_torn()
        leases, problems = self.read()
        return [lease for lease in leases if lease.owner() == "dead"], problems

    def _read(self, path: Path) -> Lease:
        try:
            content = path.read_bytes()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            content = path.read_bytes()  # in a directory of NFS: replaced or removed on another machine meanwhile
        lease = Lease.from_json(content)
        if lease.sandbox_id != path.stem:
            raise ValueError(f"it names sandbox {lease.sandbox_id!r}")
        return lease

    @contextlib.contextmanager
    def claim(self, sandbox_id: str) -> Iterator[bool]:
        """Lock a lease against other collectors; False if one of them has it, or it is gone.

        Raises:
            OSError: It cannot be opened.
        """
        path = self._path(sandbox_id)
        try:
            try:
                # Opened for writing too: NFS requires that for an exclusive lock.
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except (PermissionError, IsADirectoryError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ESTALE}:
                raise
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its previous holder may have removed it: then this is a file without a name.
            yield os.fstat(fd).st_nlink > 0
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def discard_torn(self) -> None:
        """Delete unfinished files of processes that were killed while writing a lease; no sandbox existed then."""
        for path in self.directory.glob(".*.partial"):
            with contextlib.suppress(OSError):
                try:
                    over = Lease.from_json(path.read_bytes()).owner() == "dead"
                except ValueError:
                    over = time.time() - path.stat().st_mtime > _TORN_AFTER
                if over:
                    path.unlink()

    def _path(self, sandbox_id: str) -> Path:
        return self.directory / f"{sandbox_id}.json"
