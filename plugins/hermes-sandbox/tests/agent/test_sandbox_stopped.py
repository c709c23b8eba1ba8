"""Commands that get at the agent by way of what it starts for them: at its time, its memory, its directory."""

from __future__ import annotations

import re

from sandbox_support import sandbox

from hermes_testing.separation import require_separation

_FLOOD = """pipes=(); for fd in /proc/$$/fd/*; do [[ -p $fd && -w $fd ]] && pipes+=(${fd##*/}); done
printf -v much %100000s; for fd in "${pipes[@]}"; do for i in {1..80}; do printf %s "$much" >&$fd; done; done"""
_STOP_ALL = (
    "(end=$((SECONDS + 60)); while kill -0 $$; do :; done; while ((SECONDS < end)); do kill -STOP -1; done)"
    " </dev/null >/dev/null 2>&1 &"
)
"""Stop whatever its user starts, for a minute: also where nothing separates it from this machine, that has an end."""


async def test_what_stops_everything_that_starts_does_not_stop_the_agent():
    async with sandbox("bwrap") as opened:
        await require_separation(opened)
        await opened.exec(_STOP_ALL)
        for _ in range(5):
            await opened.exec("/bin/true", timeout=0.3)
        assert await opened.read_file("/proc/self/comm")
        await opened.renew()
        assert (await opened.exec("echo free")).output == "free\n"


async def test_a_workspace_that_was_closed_is_open_after_renewal():
    async with sandbox("bwrap") as opened:
        await opened.exec("chmod 000 .")
        refused = await opened.exec("true")
        assert (refused.exit_code, refused.output) == (126, "bash: cd: /workspace: Permission denied\n")
        await opened.renew()
        await opened.write_file("result", b"")
        assert (await opened.exec("ls")).output == "result\n"


async def test_what_a_shell_is_made_to_report_without_end_costs_the_agent_no_memory():
    async with sandbox("bwrap", session="live") as opened:
        peaks = []
        for command in ("true", _FLOOD):
            assert not (await opened.exec(command, timeout=200)).timed_out
            # The agent's own process, in which nothing else runs.
            status = await opened.read_file("/proc/self/status")
            peaks.append(int(re.findall(rb"VmHWM:\s+(\d+) kB", status)[0]))
        assert peaks[1] - peaks[0] < 4000
        assert (await opened.exec("echo free; (exit 3)")).exit_code == 3
