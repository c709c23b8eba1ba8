"""Paths inside a sandbox that only the sandbox knows: its home and its directory for temporary files."""

from __future__ import annotations

from hermes_core.contracts.sandbox import Sandbox


async def expand_home(path: str, sandbox: Sandbox) -> str:
    """Replace a leading `~` by the sandbox's home; file calls take a path literally."""
    if "\0" in path:
        raise FileNotFoundError(2, "a path cannot hold a NUL character", path)
    if path != "~" and not path.startswith("~/"):
        return path
    home = await _variable("HOME", sandbox)
    return home + path[1:] if home.startswith("/") else path


async def scratch_directory(sandbox: Sandbox) -> str:
    """Return a directory for temporary files that belongs to this sandbox alone.

    Without isolation `/tmp` is the machine's: then the sandbox's own TMPDIR, or a hidden directory of the workspace.
    """
    directory = await _variable("TMPDIR", sandbox)
    if directory.startswith("/"):
        return directory.rstrip("/") or "/"
    isolated = sandbox.provenance.get("isolation", "none") != "none"
    return "/tmp" if isolated else f"{sandbox.workspace}/.hermes-tmp"  # noqa: S108 - the sandbox's own /tmp


async def _variable(name: str, sandbox: Sandbox) -> str:
    result = await sandbox.exec(f'builtin printf %s "${{{name}-}}"', timeout=30)
    return result.stdout.decode(errors="replace")
