"""Commands that stop whatever their user starts, before it runs its program."""

from __future__ import annotations

from sandbox_support import sandbox

_STOP_ALL = "(while kill -0 $$; do :; done; while :; do kill -STOP -1; done) </dev/null >/dev/null 2>&1 &"


async def test_what_stops_everything_that_starts_does_not_stop_the_agent():
    async with sandbox("bwrap") as opened:
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
