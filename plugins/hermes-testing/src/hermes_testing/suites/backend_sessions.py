"""The session: state that is kept from command to command, whatever a command does to its shell."""

from __future__ import annotations

import pytest

from hermes_core.contracts.sandbox import Sandbox
from hermes_testing.suites.backend_base import BackendBase
from hermes_testing.suites.base import needs
from hermes_testing.watching import sleep_token

_SHELL_KILLERS = {
    "exit": ("exit 7", 7),
    "exec": ("exec sh -c 'exit 5'", 5),
    "set_e": ("set -e; false; echo unreached", 1),
    "kill_9": ("kill -9 $$", 137),
    "exit_in_function": ("leave() { exit 4; }; leave", 4),
}


class Sessions(BackendBase):
    """Commands that follow one another."""

    @needs("state")
    async def test_the_working_directory_survives(self, sandbox: Sandbox) -> None:
        """As in a terminal, also with a space in its name."""
        await sandbox.exec("mkdir 'a b'; cd 'a b'")
        assert (await sandbox.exec("pwd")).output.endswith("/a b\n")

    @needs("state")
    async def test_exports_survive(self, sandbox: Sandbox) -> None:
        """With quotes and newlines, and seen by child processes."""
        await sandbox.exec("export KEPT=$'it\\'s \"two\"\\nlines'")
        assert (await sandbox.exec("sh -c 'printf %s \"$KEPT\"'")).output == 'it\'s "two"\nlines'

    @needs("state")
    async def test_functions_survive(self, sandbox: Sandbox) -> None:
        """Also those that came by sourcing a file."""
        await sandbox.write_file("library.sh", 'greet() { echo "hello $1"; }\n')
        await sandbox.exec(". ./library.sh")
        assert (await sandbox.exec("greet you")).output == "hello you\n"

    @needs("state")
    async def test_aliases_survive(self, sandbox: Sandbox) -> None:
        """With quotes, and until they are taken away."""
        await sandbox.exec("alias greet='echo \"hello there\"' gone=true")
        assert (await sandbox.exec("greet you")).output == "hello there you\n"
        await sandbox.exec("unalias gone")
        assert (await sandbox.exec("greet us; gone 2>/dev/null || echo none")).output == "hello there us\nnone\n"

    @needs("state")
    async def test_what_is_unset_stays_unset(self, sandbox: Sandbox) -> None:
        """State is the last one, not the sum of all."""
        await sandbox.exec("export GONE=1; f() { :; }")
        await sandbox.exec("unset GONE; unset -f f")
        assert (await sandbox.exec("echo ${GONE-unset}; type -t f || echo none")).output == "unset\nnone\n"

    @needs("state")
    @pytest.mark.parametrize(("command", "code"), _SHELL_KILLERS.values(), ids=_SHELL_KILLERS)
    async def test_state_survives_the_end_of_the_shell(self, sandbox: Sandbox, command: str, code: int) -> None:
        """A command that ends its shell has its exit code and costs nothing of what was there before."""
        await sandbox.exec("mkdir deep; cd deep; export KEPT=yes; f() { echo f; }")
        assert (await sandbox.exec(command)).exit_code == code
        assert (await sandbox.exec("echo $KEPT $(f) ${PWD##*/}")).output == "yes f deep\n"

    @needs("state")
    async def test_state_survives_a_timeout(self, sandbox: Sandbox) -> None:
        """Only the command is killed, not the session."""
        await sandbox.exec("mkdir deep; cd deep; export KEPT=yes")
        assert (await sandbox.exec(f"sleep {sleep_token()}", timeout=0.4)).timed_out
        assert (await sandbox.exec("echo $KEPT ${PWD##*/}")).output == "yes deep\n"

    @needs("state")
    async def test_a_removed_working_directory_is_no_dead_end(self, sandbox: Sandbox) -> None:
        """The next command still runs."""
        await sandbox.exec("mkdir gone; cd gone; rmdir ../gone")
        assert (await sandbox.exec("echo alive")).stdout == b"alive\n"

    async def test_an_alias_or_option_does_not_leak_into_the_machinery(self, sandbox: Sandbox) -> None:
        """Redefining what a wrapper would use, or tracing, breaks nothing."""
        await sandbox.exec("cd() { echo hijacked; }; alias printf=false; set -x; PATH=/nonexistent")
        await sandbox.exec("set +x; unset -f cd; unalias printf; PATH=/usr/local/bin:/usr/bin:/bin")
        assert (await sandbox.exec("echo fine")).stdout == b"fine\n"
