"""The command line of bubblewrap for one sandbox."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

WORKSPACE: Final = "/workspace"
HOME: Final = "/home/sandbox"
STATE: Final = "/run/hermes"

_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "services",
    "protocols",
    "ssl",
)
_ETC_NETWORK: Final = ("hosts", "resolv.conf")


def version() -> str:
    """Return the program's version; blocks, and returns "" if it cannot be run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()
    return ""


@cache
def counts_apart() -> bool:
    """Tell whether this kernel counts a user's processes per user namespace, as Linux 5.14 and newer do."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)


def advice(said: str) -> str:
    """Return what to do if bubblewrap does not start, by its message."""
    if "Can't find source path" in said or "Can't bind mount" in said:
        return "set the backend's option root_dir to a directory that every user may enter, such as /var/tmp"
    if "namespace" in said or "uid map" in said or "Operation not permitted" in said:
        return (
            "allow user namespaces: `sysctl user.max_user_namespaces=15000` as root (on Ubuntu also "
            "`kernel.apparmor_restrict_unprivileged_userns=0`); in a container, let its engine's profiles allow them"
        )
    return "apt-get install bubblewrap, and see that `bwrap --unshare-all --dev-bind / / true` works"


def _system(python: str) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    prefix = Path(python).resolve().parents[1]
    if prefix.parts[:2] not in {("/", "usr"), ("/",)}:
        yield from ("--ro-bind", str(prefix), str(prefix))


def configuration(root: str, *, network: bool) -> Iterator[str]:
    """Yield the arguments that show the needed files of /etc, with the accounts of `root`."""
    for name in _ETC + (_ETC_NETWORK if network else ()):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for name in ("passwd", "group"):
        yield from ("--ro-bind", f"{root}/{name}", f"/etc/{name}")


def write_accounts(root: Path, uid: int, gid: int) -> None:
    """Write the user and group files for the sandbox: one account and `nobody`."""
    lines = [f"sandbox:x:{uid}:{gid}::{HOME}:/bin/bash"]
    if uid != 65534:
        lines.append("nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin")
    (root / "passwd").write_text("\n".join(lines) + "\n", encoding="ascii")
    (root / "group").write_text(f"sandbox:x:{gid}:\n", encoding="ascii")


def _tmpfs(limit: int | None, mode: str, target: str) -> tuple[str, ...]:
    size = () if limit is None else ("--size", str(limit))
    return ("--perms", mode, *size, "--tmpfs", target)


def _memory_filesystems(limit: int | None) -> Iterator[str]:
    yield from ("--dev", "/dev")
    if limit is not None:
        yield from (*_tmpfs(limit, "1777", "/dev/shm"), "--remount-ro", "/dev")  # noqa: S108 - inside
    yield from _tmpfs(limit, "0700", STATE)


def command_line(
    program: Sequence[str],
    root: Path,
    *,
    network: bool,
    info_fd: int,
    frozen: bool = False,
    scratch_limit: int | None = None,
    read_only_root: bool = False,
) -> list[str]:
    """Return the argv that runs `program` in new namespaces, with the directories of `root`.

    `scratch_limit` bounds, in bytes, each of the other writable places: the root with /etc and /run, a
    file system in memory too, /dev/shm, and the agent's own. With a `read_only_root`, nothing inside can write to the
    first, and if it is `frozen`, nothing can write to the workspace.
    """
    return [
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        *(["--share-net"] if network else []),
        "--die-with-parent",
        # The agent is the first process of the namespace: nothing inside can signal it.
        "--as-pid-1",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--hostname",
        "sandbox",
        *_tmpfs(scratch_limit, "0755", "/"),
        *_system(program[0]),
        *configuration(str(root), network=network),
        "--proc",
        "/proc",
        *_memory_filesystems(scratch_limit),
        "--bind",
        str(root / "tmp"),
        "/tmp",  # noqa: S108 - inside, and private to the sandbox
        "--bind",
        str(root / "home"),
        HOME,
        "--ro-bind" if frozen else "--bind",
        str(root / "workspace"),
        WORKSPACE,
        *(("--remount-ro", "/") if read_only_root else ()),
        "--chdir",
        "/",
        "--info-fd",
        str(info_fd),
        "--",
        *program,
    ]
