"""Run commands in a private directory inside the sandbox, so that nothing the model left behind can change them.

When a verifier runs, the model's processes are dead and the shell session is new. Files may remain: `~/.bashrc`,
`~/.gitconfig`, programs in directories of PATH, `sitecustomize.py`, repository hooks. Commands therefore get a new
environment: an empty HOME, a PATH without directories in the workspace, in HOME or in temporary directories, and
settings that make git ignore configured hooks and helpers. A model that was root in the sandbox could replace the
system's own programs; only a verifier with a fresh sandbox, which the verifiers of such a task get, is safe from that.
There PATH keeps its directories in the workspace and HOME, because these come from the image; programs in them may lead
to or call other files of the workspace, which may be the model's work.
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

# The room is below the sandbox's own TMPDIR: without isolation, /tmp is shared by the whole machine, so attacks on a
# judge from other sandboxes would reach this one. TMPDIR is not used if it leads into the workspace, where a room would
# be visible, or if it is full or unusable. The last resort, /dev/shm, is new with every agent under bubblewrap: data of
# the model is gone. `command -p` searches the system's own directories and skips functions and aliases. The parentheses
# make this a subshell, which does not affect the session.
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
"""Bytes that must be free for a room: without space for its files a judge would fail halfway."""

# Overrides of a repository's config; the command scope is git's strongest one.
_GIT_OVERRIDES: Final = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("safe.directory", "*"),
)


class Room:
    """The private directory and its environment."""

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
        """Return an unguessable path in the room."""
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
        """Run a bash command; `inherit_env` keeps the variables that the sandbox starts with (an image's ENV).

        Standard input is a pipe with `stdin`: unlike a file, processes that the command starts cannot read it a second
        time, nor find it in another process.
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
    """Create a room and remove it afterwards."""
    command = _MAKE.format(workspace=shlex.quote(sandbox.workspace.rstrip("/")), reserve=_RESERVE)
    made = await sandbox.exec(command, timeout=30, cwd="/")
    lines = made.stdout.decode("utf-8", "replace").splitlines()
    if made.exit_code != 0 or len(lines) != 3:
        raise WorkspaceError(f"cannot create a private directory in the sandbox: {made.output.strip()[:300]}")
    path, search_path, home = lines
    if made.stderr:
        complaint = made.stderr.decode("utf-8", "replace").strip()
        _logger.warning("a verifier's private directory is %s, because of: %s", path, complaint[-300:])
    try:
        # The folders on PATH come from the image if the sandbox has replaced everything else.
        untrusted = () if sandbox.provenance.get("has_own_programs") else (sandbox.workspace, home)
        yield Room(sandbox, path, trusted_path(search_path, untrusted=untrusted))
    finally:
        try:
            await sandbox.remove(path)
        except OSError as error:
            # Changes of a judged program to the room must not lose the verdict.
            _logger.warning("cannot remove a verifier's private directory from the sandbox: %s", error)


def _with_stdin(command: str, path: str) -> str:
    inner = f"exec bash --noprofile --norc -c {shlex.quote(command)}"
    path = shlex.quote(path)
    return f'given=$(<{path}); command -p rm -f {path}; {inner} < <(printf "%s\\n" "$given")'


def trusted_path(search_path: str, *, untrusted: tuple[str, ...]) -> str:
    """Return the entries of a PATH where a model without root cannot have put programs."""
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
        # Replacement objects would show a false history.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CONFIG_COUNT": str(len(_GIT_OVERRIDES)),
    }
    for index, (key, value) in enumerate(_GIT_OVERRIDES):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables
