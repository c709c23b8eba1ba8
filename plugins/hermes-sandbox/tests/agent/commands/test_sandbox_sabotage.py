"""Whatever a command does to its shell, each later command runs, or the session says why not.

A command that did not start must not be reported as an exit code, and must not take its whole timeout.
"""

from __future__ import annotations

import pytest
from sandbox_support import sandbox as open_one

from hermes_testing.watching import exists

LONG = 600.0
"""Seconds that no command here needs on any machine. A report of a timeout is a failure."""

INTERNAL = [f"_hermes_{name}" for name in ["b", "c", "n", "o", "r", "s", "saved", "mark", "dir", "home", "save"]]
OF_SHELL = ["PROMPT_COMMAND", "PS0", "PS4", "IFS", "PATH", "RANDOM", "LINENO", "SECONDS", "REPLY", "MAPFILE", "_"]
USED = ["eval", "printf", "command", "trap", "set", "unset", "cd", "export", "declare", "mapfile", "read", "return"]
USED += ["exec", "shopt", "source"]

HARMLESS = [
    *(f"readonly {name}" for name in [*INTERNAL, *OF_SHELL]),
    "PROMPT_COMMAND='echo hi'",
    "PROMPT_COMMAND=(true 'echo hi')",
    "PROMPT_COMMAND=false; readonly PROMPT_COMMAND",
    "unset PROMPT_COMMAND",
    "unset PS1 PS2 PS4 IFS PATH HOME",
    "PS1='$(echo hi) ' PS2='> ' PS0='$(echo hi)' PS4='+$(echo hi) '",
    "IFS=_123 PATH=/nowhere HOME=/nowhere BASH_ENV=/nowhere ENV=/nowhere; export BASH_ENV ENV",
    *(f"set -{letter}" for letter in "ufxvkCTEabh"),
    *(f"set -o {name}" for name in ["posix", "pipefail", "ignoreeof", "noclobber", "physical", "privileged"]),
    "POSIXLY_CORRECT=y; readonly POSIXLY_CORRECT",
    *(f"shopt -s {name}" for name in ["extdebug", "failglob", "nullglob", "lastpipe", "sourcepath", "xpg_echo"]),
    "shopt -u expand_aliases sourcepath",
    *(f"trap 'echo hi >/dev/null' {name}" for name in ["DEBUG", "ERR", "RETURN"]),
    "trap 'echo \"$BASH_COMMAND\"' DEBUG",
    "set -T; trap : DEBUG RETURN",
    *(f"{name}() {{ echo mine; }}" for name in USED),
    *(f"alias {name}='echo mine'" for name in [*USED, "builtin", "{"]),
    "enable -n command test read; enable -n cd",
    "exec >/dev/null",
    "exec 2>&1 </dev/null",
    "exec 3>&- 9>&- 250>&-",
    "exec 9>/dev/null 250>&9",
    "cat <<E\nopen",
    "echo 'open",
    "if",
    "# comment \\",
    ": ${missing?needed}",
    "break; continue; return 4",
    "umask 777; umask",
    "stty -a",
    "ulimit -c 0",
]
"""Commands after which a session has lost nothing."""

DAMAGING = [
    "set -r",
    "set -e",
    "set -n",
    "enable -n builtin",
    "enable -n eval",
    "enable -n printf",
    "enable -n .",
    "enable -n builtin eval printf . source trap export unset set exec",
    "builtin() { :; }",
    "builtin() { return 2; }",
    'builtin() { command builtin "$@"; return 1; }',
    'builtin() { command builtin "$@"; (exit 1); }; readonly -f builtin',
    'builtin() { command builtin "$@"; }',
    "builtin() { echo 'exit 0'; }; readonly -f builtin",
    "builtin() { if [[ $1 == declare ]]; then echo 'exit 0'; else command builtin \"$@\"; fi; }",
    "builtin() { if [[ $1 == declare ]]; then echo 'exec true'; else command builtin \"$@\"; fi; }",
    'builtin() { [[ $1 == eval ]] || command builtin "$@"; }; readonly -f builtin',
    'builtin() { [[ $1 == printf ]] || command builtin "$@"; }; readonly -f builtin',
    "shopt -s extdebug; trap false DEBUG",
    "set -T; shopt -s extdebug; trap 'return 2' DEBUG",
    "trap 'exit 0' DEBUG",
    "trap 'echo \"exit 0\"' DEBUG",
    "trap 'exit 0' ERR; false",
    "trap 'exit 0' RETURN",
    "PROMPT_COMMAND='exit 0'",
    "PROMPT_COMMAND='exec 250>&-'",
    "PROMPT_COMMAND='read x; read x; read x'",
    "PS1='$(read x; read x; read x)'",
    "PS1='${missing?needed}'; PROMPT_COMMAND=': ${missing?needed}'",
    "for name in $(compgen -v); do readonly $name; done",
    "readonly -f $(compgen -A function); readonly HERMES_SANDBOX PWD OLDPWD",
    *(f"ulimit -n {count}" for count in [0, 3, 10, 11, 12, 13, 14]),
    "ulimit -f 0",
    "exec 10>&- 11>&- 12>&- 13>&- 14>&-",
    "exec 10</dev/null 11<&10 12<&10 13<&10",
    "exec sh",
    "exec true",
    "exec </dev/null; exit 0",
    "kill -9 $$",
    "chmod 000 ../state-*",
    "chmod 000 ../state-*/*",
    "rm -rf ../state-*",
    "for each in ../state-*; do rm -rf $each; touch $each; done",
    "for each in ../state-*; do rm -rf $each; ln -s /nowhere $each; done",
    "for each in ../state-*/*; do rm -rf $each; mkdir $each; done",
    "for each in ../state-*/*; do rm -rf $each; mkfifo $each; done",
    "for each in ../state-*/*; do rm -rf $each; ln -s /dev/full $each; done",
    "mkdir here; cd here; rm -rf ../here",
    *(f"ulimit {limit}" for limit in ["-v 1000", "-v 1", "-s 1", "-u 0", "-p 0"]),
    "TMOUT=1; FUNCNEST=1; EXECIGNORE='*'; BASH_COMPAT=3.1; IFS=$'\\n0123456789'; readonly IFS",
    "exec 9>traced; BASH_XTRACEFD=9; set -x; unset BASH_XTRACEFD",
    *(f"declare -{kind}" for kind in ["i HERMES_SANDBOX", "n HERMES_SANDBOX=X", "u HERMES_SANDBOX"]),
    "trap '' INT TERM CHLD EXIT DEBUG",
    *(f"trap '{action}' DEBUG" for action in ["kill -9 $$", "exec true"]),
    "PROMPT_COMMAND='exec true'",
    "PS1='$(exec 250>&-)${x:=$(exit 3)}'",
    'for ((i = 0; i < 256; i++)); do eval "exec $i>&-"; done',
    'for ((i = 3; i < 256; i++)); do eval "exec $i</dev/null"; done',
    *(f"kill -{name} $$" for name in ["TERM", "HUP", "INT", "QUIT", "PIPE"]),
    "unset -f $(compgen -A function); unset $(compgen -v)",
    "alias do=done then=fi 'eval=false' 'builtin=false'",
    "hash -p /bin/false true; hash -p /bin/false builtin; set -- a b c; set +Bh",
    "(while kill -0 $$; do kill -STOP $$; kill -CONT $$; done) >/dev/null 2>&1 & kill $!; wait",
]
"""Commands after which a session is allowed to report a loss."""


OFTEN = ["PROMPT_COMMAND=date", "unset PROMPT_COMMAND", "readonly PROMPT_COMMAND _hermes_c _hermes_n", "set -ux"]
"""Changes that commands make more often."""
BREAKING = [
    "set -r",
    'builtin() { command builtin "$@"; return 1; }',
    "enable -n builtin",
    "shopt -s extdebug; trap false DEBUG",
    "builtin() { if [[ $1 == declare ]]; then echo 'exit 0'; else command builtin \"$@\"; fi; }",
]


@pytest.fixture(params=["robust", "live"])
async def sandbox(request):
    async with open_one(session=request.param) as opened:
        yield opened


async def prove(sandbox, name):
    """Run a command that creates a file if it runs. Check that it ran once or that the session reported why not."""
    text = f"[[ ! -e {name} ]] && : >{name} && echo {name}; (exit 3)"
    result = await sandbox.exec(text, timeout=LONG)
    assert not result.timed_out
    if not await exists(sandbox, name):
        assert b"hermes: " in result.stderr
    else:
        assert (result.stdout, result.exit_code) == (f"{name}\n".encode(), 3)
    return result


async def require_recovery(sandbox, damage):
    place = sandbox.workspace
    await sandbox.exec(damage, timeout=LONG)
    for name in ["first", "second"]:
        await prove(sandbox, f"{place}/{name}")
    # By now the session has recovered from any damage.
    assert await exists(sandbox, "second")


async def require_nothing_lost(sandbox, change):
    await sandbox.exec("X=kept; cd /usr")
    changed = await sandbox.exec(change, timeout=LONG)
    assert not changed.timed_out
    place = sandbox.workspace
    for name in ["first", "second"]:
        await prove(sandbox, f"{place}/{name}")
        assert await exists(sandbox, name)
    result = await sandbox.exec('echo "$X"; pwd', timeout=LONG)
    assert b"hermes: " not in result.stderr
    assert result.stdout.endswith(b"kept\n/usr\n")


@pytest.mark.parametrize("damage", BREAKING)
async def test_what_follows_a_damage_runs_or_is_told_why_not(sandbox, damage):
    await require_recovery(sandbox, damage)


@pytest.mark.parametrize("damage", DAMAGING)
async def test_after_every_damage_commands_run_or_are_told_why_not(sandbox, damage):
    await require_recovery(sandbox, damage)


@pytest.mark.parametrize("change", OFTEN)
async def test_what_a_shell_is_told_costs_nothing(sandbox, change):
    await require_nothing_lost(sandbox, change)


@pytest.mark.parametrize("change", HARMLESS)
async def test_whatever_harmless_a_shell_is_told_costs_nothing(sandbox, change):
    await require_nothing_lost(sandbox, change)


@pytest.mark.parametrize(
    "change",
    [
        "ulimit -f 0",
        "enable -n builtin",
        "readonly _hermes_c",
        "trap 'echo $BASH_COMMAND >/dev/null' DEBUG; trap : ERR",
        'builtin() { command builtin "$@"; }',
    ],
)
async def test_a_robust_command_that_changes_its_shell_keeps_its_exit_code(change):
    async with open_one() as robust:
        assert (await robust.exec(f"{change}; (exit 7)", timeout=LONG)).exit_code == 7


async def test_a_trap_that_prints_costs_a_robust_session_nothing():
    async with open_one() as robust:
        await robust.exec("trap 'echo \"$BASH_COMMAND\"' DEBUG; X=kept", timeout=LONG)
        assert (await robust.exec("echo $X", timeout=LONG)).output == "kept\n"


async def test_a_call_s_own_settings_are_set_back_whatever_is_read_only(sandbox):
    await sandbox.exec("readonly _hermes_r _hermes_1; A=kept", timeout=LONG)
    await sandbox.exec("A=changed", env={"A": "own"}, cwd="/usr", timeout=LONG)
    assert (await sandbox.exec("echo $A $PWD", timeout=LONG)).output == f"kept {sandbox.workspace}\n"


async def test_processes_start_after_what_a_session_was_told(sandbox):
    await sandbox.exec("X=kept; " + "readonly " + " ".join(INTERNAL), timeout=LONG)
    started = await sandbox.processes.start("echo $X")
    ended = await sandbox.processes.wait(started.id)
    output = await sandbox.processes.read(started.id)
    assert (output.data, ended.exit_code) == (b"kept\n", 0)


async def test_a_process_that_the_session_keeps_from_starting_says_so():
    async with open_one() as robust:
        await robust.exec(BREAKING[-1], timeout=LONG)
        started = await robust.processes.start("echo ran")
        ended = await robust.processes.wait(started.id)
        output = (await robust.processes.read(started.id)).data
        assert (ended.exit_code, output.startswith(b"hermes: this was not run")) == (254, True)


async def test_a_live_shell_that_was_stopped_between_two_commands_goes_on():
    async with open_one(session="live") as live:
        shell = (await live.exec("X=kept; echo $$")).output.strip()
        stop = await live.processes.start(f"kill -STOP {shell}")
        await live.processes.wait(stop.id)
        result = await live.exec("echo $X", timeout=LONG)
        assert (result.output, result.timed_out) == ("kept\n", False)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("exec sh -c 'sleep 1; echo end; exit 3'", ("end\n", 3)),
        ("exec sleep 0.3", ("", 0)),
        ("exec 3>&-; exec cat /dev/null", ("", 0)),
    ],
)
async def test_a_program_in_the_place_of_the_shell_ends_as_it_wants(sandbox, command, answer):
    result = await sandbox.exec(command, timeout=LONG)
    assert (result.output, result.exit_code) == answer
    assert (await sandbox.exec("echo on", timeout=LONG)).stdout == b"on\n"


async def test_a_command_that_its_session_has_kept_from_beginning_until_its_time_was_over_says_so():
    async with open_one() as robust:
        await robust.exec("X=kept; f() { :; }")
        await robust.exec('builtin() { [[ $1 == eval ]] && sleep 600; command builtin "$@"; }', timeout=LONG)
        result = await robust.exec("echo ran", timeout=1)
        assert (result.timed_out, result.stdout) == (True, b"")
        assert b"had not begun when it was ended" in result.stderr
        assert (await robust.exec("echo $X", timeout=LONG)).output == "kept\n"
