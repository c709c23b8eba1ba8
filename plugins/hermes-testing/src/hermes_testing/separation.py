"""Prove that a sandbox cannot reach processes of this machine, before a test attacks everything it sees."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hermes_core.contracts.sandbox import Sandbox
from hermes_testing.watching import sleep_token

__all__ = ["require_separation"]

_LOOK: Final = r"""
printf 'namespace %s\n' "$(readlink /proc/self/ns/pid)"
printf 'boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)"
printf 'capabilities %s\n' "$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)"
printf 'seen %s\n' "$(cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -x -e "$1" -e "$2" | sort -u | tr '\n' ' ')"
echo end here
"""
"""A script for any POSIX shell. Its name, `$0`, is the token that must be found; `$1` and `$2` match both tokens."""
_LASTS: Final = 120.0
"""Seconds after which an unfinished look counts as failed."""


async def require_separation(sandbox: Sandbox) -> None:
    """Fail unless a sandbox shows that it cannot reach processes of this machine; call it before an attack.

    An inconclusive look counts against the sandbox. The look must finish, find a process of the sandbox and none of
    this machine's, have no capability, and be in a different PID namespace than the caller or on a different kernel. A
    different machine has a different kernel: what a backend without separation reaches there, under its account, is not
    checked.

    Raises:
        AssertionError: One of these does not hold; the text says which.
    """
    inside, outside = sleep_token(), sleep_token()
    here = await asyncio.create_subprocess_exec("sleep", outside)
    try:
        # The dots are escaped because the patterns are arguments of a process too, and must not match themselves.
        patterns = [shlex.quote(token.replace(".", r"\.")) for token in (inside, outside)]
        command = f"sh -c {shlex.quote(_LOOK)} {inside} {' '.join(patterns)} 2>/dev/null"
        look = await sandbox.exec(command, timeout=_LASTS)
    finally:
        here.kill()
        await here.wait()
    found = dict(line.split(" ", 1) for line in look.output.splitlines() if " " in line)
    assert not look.timed_out, f"the look at its processes did not end within {_LASTS:.0f} s"
    assert "end" in found, f"the look at its processes failed: {look.output!r}"
    seen = found.get("seen", "").split()
    assert outside not in seen, "it sees the processes of this machine"
    assert seen == [inside], "it does not find its own processes, so it is unknown whether it sees this machine's"
    assert _is_elsewhere(found), f"it is in this machine's PID namespace, or does not report its own: {look.output!r}"
    held = found.get("capabilities", "")
    assert set(held) == {"0"}, f"its commands have capabilities, or do not report them: {held!r}"


def _is_elsewhere(found: Mapping[str, str]) -> bool:
    """Tell whether a look shows a different PID namespace than this process's, or a different kernel."""
    if sys.platform != "linux":
        return found.get("namespace", "").startswith("pid:")
    here = {
        "namespace": str(Path("/proc/self/ns/pid").readlink()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
    }
    return any(found.get(name, "") not in {"", value} for name, value in here.items())
