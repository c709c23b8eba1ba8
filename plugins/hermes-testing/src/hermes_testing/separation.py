"""Proof that a sandbox has no process of this machine in reach, before a test attacks all that it sees."""

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
"""For any POSIX shell. Its name, `$0`, is the token that must be found; `$1` and `$2` are patterns for both tokens."""
_LASTS: Final = 120.0
"""Seconds after which a look that does not end counts as failed."""


async def require_separation(sandbox: Sandbox) -> None:
    """Fail unless a sandbox shows that no process of this machine is in its reach; call it before an attack.

    A look by which nothing can be told counts against the sandbox. It has to come to its end, to find a process of the
    sandbox itself and none of this machine's, to have no capability, and to be in another PID namespace than the caller
    or on another kernel. Another machine is another kernel: what a backend that separates nothing reaches there, under
    the account that it has there, is not looked at.

    Raises:
        AssertionError: One of these is not so; which, is in its text.
    """
    inside, outside = sleep_token(), sleep_token()
    here = await asyncio.create_subprocess_exec("sleep", outside)
    try:
        # The dots are escaped: the patterns are arguments of a process, too, and must not match themselves.
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
    assert seen == [inside], "it does not find its own processes, so whether it sees this machine's cannot be told"
    assert _is_elsewhere(found), f"it is in this machine's PID namespace, or does not tell its own: {look.output!r}"
    held = found.get("capabilities", "")
    assert set(held) == {"0"}, f"its commands have capabilities, or do not tell: {held!r}"


def _is_elsewhere(found: Mapping[str, str]) -> bool:
    """Tell whether what a look has found shows another PID namespace than this process's, or another kernel."""
    if sys.platform != "linux":
        return found.get("namespace", "").startswith("pid:")
    here = {
        "namespace": str(Path("/proc/self/ns/pid").readlink()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
    }
    return any(found.get(name, "") not in {"", value} for name, value in here.items())
