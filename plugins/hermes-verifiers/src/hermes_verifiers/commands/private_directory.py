"""A private directory of the verifier inside the sandbox, and commands that nothing the model left behind can change.

When a verifier runs, the model's processes are dead and the shell session is new. What may remain are files:
`~/.bashrc`, `~/.gitconfig`, programs in directories of PATH, `sitecustomize.py`, repository hooks. Commands therefore
get an environment built from nothing: an empty HOME, a PATH without any place in the workspace, in HOME or in temporary
directories, and git told to ignore configured hooks and helpers. A model that was root in the sandbox could replace the
system's own programs; only a verifier with a fresh sandbox, which such a task's get, is safe from that. There PATH
keeps what it has of the workspace and of HOME, whose folders stay the image's; what a program in one of them leads to
or calls elsewhere in the workspace may be the work itself.
"""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from hermes_core.contracts.errors import WorkspaceError
from hermes_core.contracts.sandbox import ExecResult, Sandbox

_logger = logging.getLogger(__name__)
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The room lies below the sandbox's own TMPDIR: without isolation /tmp is the whole machine's, and every other sandbox's
# attack on a judge would meet this one. But not where that leads into the workspace, in which a room would be seen, nor
# where it cannot be used or is full. The last resort, /dev/shm, is new with every agent under bubblewrap: what a model
# has filled is not there any more. `command -p` searches the system's own directories and skips functions and aliases.
# The parentheses keep all of this out of the session.
_MAKE: Final = """(
umask 077
w=$(command cd -P -- {workspace} && command pwd -P)
t=${{TMPDIR:-/tmp}}
# A directory that its own user may not enter can still be opened by that user. No link is followed: nothing changes
# in what is to be judged.
(command cd -- "$t") 2>/dev/null || [ -L "$t" ] || [ ! -d "$t" ] || command -p chmod u+rwx -- "$t"
t=$(command cd -P -- "$t" && command pwd -P) || t=/tmp
case $t in "$w" | "$w"/*) t=/tmp ;; esac
[ "$t" = /tmp ] || command -p chmod u+rwx -- "$t"
for t in "$t" /tmp /dev/shm; do
d=$(command -p mktemp -d "$t/verify.XXXXXXXXXX") || continue
command -p mkdir "$d/home" && printf %0{reserve}d 0 >"$d/space" && command -p rm "$d/space" || {{
command -p rm -rf -- "$d"
continue
}}
printf "%s\\n" "$d" "$PATH" "$HOME"
exit
done
exit 1
)"""
_RESERVE: Final = 1 << 20
"""Bytes that must be free where a room is made: without space for its files a judge would fail halfway."""

# Overrides of what a repository's own config may hold; the command scope is the strongest one git has.
_GIT_OVERRIDES: Final = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("safe.directory", "*"),
)


class Room:
    """The private directory and the environment that goes with it."""

    def __init__(self, sandbox: Sandbox, path: str, search_path: str) -> None:
        self.sandbox = sandbox
        self.path = path
        self._environment = _environment(home=f"{path}/home", search_path=search_path)

    async def put(self, name: str, data: bytes | str, *, mode: int = 0o600) -> str:
        """Write a file into the room and return its absolute path."""
        path = f"{self.path}/{name}"
        await self.sandbox.write_file(path, data, mode=mode)
        return path

    def secret_path(self) -> str:
        """Return a path in the room that nobody can guess."""
        return f"{self.path}/{secrets.token_hex(16)}"

    async def run(
        self,
        command: str,
        *,
        timeout: float,
        cwd: str | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
    ) -> ExecResult:
        """Run a bash command; `inherit_env` keeps the variables the sandbox itself starts with (an image's ENV).

        Its standard input is a pipe that holds `stdin`: what the command starts cannot read it a second time, as it
        could if it were a file, nor find it with another process.
        """
        variables = {**self._environment, **(env or {})}
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        cleared = "" if inherit_env else "-i "
        if stdin is not None:
            command = _with_stdin(command, await self.put(secrets.token_hex(16), stdin))
        wrapped = f"command -p env {cleared}{assignments} bash --noprofile --norc -c {shlex.quote(command)}"
        return await self.sandbox.exec(wrapped, cwd=cwd or self.sandbox.workspace, timeout=timeout)


@asynccontextmanager
async def open_room(sandbox: Sandbox) -> AsyncIterator[Room]:
    """Make a room and remove it afterwards."""
    command = _MAKE.format(workspace=shlex.quote(sandbox.workspace.rstrip("/")), reserve=_RESERVE)
    made = await sandbox.exec(command, timeout=30, cwd="/")
    lines = made.stdout.decode("utf-8", "replace").splitlines()
    if made.exit_code != 0 or len(lines) != 3:
        raise WorkspaceError(f"no private directory in the sandbox: {made.output.strip()[-300:]}")
    path, search_path, home = lines
    if made.stderr:
        complaint = made.stderr.decode("utf-8", "replace").strip()
        _logger.warning("a verifier's private directory is %s, because of: %s", path, complaint[-300:])
    try:
        # The folders on PATH are the image's where a sandbox has taken over everything else.
        untrusted = () if sandbox.provenance.get("has_own_programs") else (sandbox.workspace, home)
        yield Room(sandbox, path, trusted_path(search_path, untrusted=untrusted))
    finally:
        try:
            await sandbox.remove(path)
        except OSError as error:
            # What a judged program made of the room must not cost the verdict that was reached in it.
            _logger.warning("a verifier's private directory stays in the sandbox: %s", error)


def _with_stdin(command: str, path: str) -> str:
    inner = f"exec bash --noprofile --norc -c {shlex.quote(command)}"
    path = shlex.quote(path)
    return f'given=$(<{path}); command -p rm -f {path}; {inner} < <(printf "%s\\n" "$given")'


def trusted_path(search_path: str, *, untrusted: tuple[str, ...]) -> str:
    """Return the entries of a PATH where a model that is no root cannot have put programs."""
    roots = tuple(root.rstrip("/") for root in (*untrusted, "/tmp", "/var/tmp", "/dev/shm") if root.rstrip("/"))  # noqa: S108 - named to be distrusted
    entries = [entry.rstrip("/") for entry in search_path.split(":") if entry.startswith("/")]
    trusted = [e for e in entries if e and ".." not in e.split("/") and not _is_below_any(e, roots)]
    return ":".join(trusted) or DEFAULT_PATH


def _is_below_any(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _environment(*, home: str, search_path: str) -> dict[str, str]:
    variables = {
        "PATH": search_path,
        "HOME": home,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "PAGER": "cat",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        # Replacement objects would show a history that is not there.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_COUNT": str(len(_GIT_OVERRIDES)),
    }
    for index, (key, value) in enumerate(_GIT_OVERRIDES):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables
