"""The bash text around each command. It restores the session before the command and saves it after, without any fork.

Each variable here has the command's unpredictable number in its name, so that no earlier command can have made it
read-only. The script reports that a command begins on the descriptor from which it read the command, after everything
that could prevent the command from beginning.
"""

from __future__ import annotations

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Variables that bash sets itself, or that would change its behaviour when assigned. They are not part of a session.
_NOT_STATE = (
    "BASH BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING BASH_LINENO"
    " BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS"
    " FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OPTERR OPTIND OSTYPE PIPESTATUS PWD RANDOM SECONDS SHLVL SRANDOM"
    " _ _hermes_@NUMBER@ HERMES_SANDBOX"
)

# Nothing in it ends a shell with errexit, no trap writes into the state, and a file size limit does not change the
# shell's exit code. The order matters when the state is read: functions before aliases.
_SAVE = r"""{ { \builtin trap - DEBUG ERR RETURN; \builtin trap '' XFSZ; } >/dev/null;
{ \builtin printf '%s\0' @NUMBER@ "$BASHOPTS" "$SHELLOPTS"; \builtin unset -v @CALL@; \builtin . @DIR@/call;
\builtin unset -v @NOT_STATE@;
\builtin declare -p; \builtin declare -f; \builtin declare -Fx; \builtin alias -p; \builtin umask -p;
\builtin printf '\0'; \builtin pwd; \builtin printf '\0%s\0' @NUMBER@; } 1<>@DIR@/state; } || \builtin :"""

# Descriptor 3 has the command, the call's own environment and the saved session, each ended by a NUL. Everything is on
# one line: bash reads a line at a time, so no alias of the session can change it, and line numbers are correct.
_RESTORE = (
    r"{ \builtin mapfile -d '' -u 3 _hermes_@NUMBER@; \builtin shopt -s expand_aliases;"
    r' \builtin unset -v BASH_EXECUTION_STRING; \builtin eval "${_hermes_@NUMBER@[2]}";@KEEP@ } >/dev/null 2>&1;'
    r' \builtin eval "${_hermes_@NUMBER@[1]}"; _hermes_@NUMBER@=("${_hermes_@NUMBER@[0]}");'
)
_RUN = (
    r""" if \builtin eval '\builtin printf + >&3'; then \builtin eval -- "$_hermes_@NUMBER@" 3>&-;"""
    r""" else \builtin printf ++ >&3; fi"""
)
# The second `set` is for a session with a function named `builtin`, which has its own parameters; the second `exit` is
# for a session without `builtin`. A restricted shell cannot redirect, and then no longer knows how the command ended.
_RUN_AND_SAVE = (
    rf"{_RESTORE} \builtin trap -- @TRAP@ EXIT;{_RUN}; {{ _hermes_@NUMBER@=$?;"
    r' \builtin set -- "$_hermes_@NUMBER@" @NUMBER@; [[ ${2-} == @NUMBER@ ]] || \set -- "$_hermes_@NUMBER@" @NUMBER@;'
    r' @SAVE@; \builtin set +x; } >/dev/null 2>&1; \builtin exit "${1:-1}" || \exit "${1:-1}"'
)
_TRAP = r"{ [[ ${2-} == @NUMBER@ ]] || { @SAVE@; }; } >/dev/null 2>&1"

_USUAL_OPTIONS = b"braceexpand:hashall:interactive-comments"
_IN_NAMES = b"abcdefghijklmnopqrstuvwxyz0123456789_:-"


class SavedState(NamedTuple):
    """Bash text that restores a session, and text for the line of the command itself.

    The second text sets options, because errexit, nounset or xtrace would affect the restoration itself.
    """

    text: bytes
    options: bytes


NO_STATE = SavedState(b"", b"")


def read_state(parts: list[bytes], number: int) -> tuple[SavedState, bytes] | None:
    """Parse what a command has saved into state and directory. Return None if it is torn or of another command."""
    expected = str(number).encode()
    if len(parts) != 7 or not parts[0] == parts[5] == expected or any(part.strip(_IN_NAMES) for part in parts[1:3]):
        return None
    # The options come before the functions, which can contain extended patterns.
    choose = b"[[ $BASHOPTS == %b ]] || { \\builtin shopt -u ${BASHOPTS//:/ }; \\builtin shopt -s %b; }\n"
    chosen = choose % (parts[1], parts[1].replace(b":", b" "))
    return SavedState(chosen + parts[3], _options(parts[2])), parts[4][:-1]


def _options(names: bytes) -> bytes:
    if names == _USUAL_OPTIONS:
        return b""
    off = [b"+o " + name for name in _USUAL_OPTIONS.split(b":")]
    on = [b"-o " + name for name in names.split(b":") if name]
    return b" ".join([b"\\builtin set", *off, *on]) + b";"


def compose(directory: str, number: int, call_only: Iterable[str]) -> str:
    """Return the text for `bash -c`. Changes to the variables in `call_only` are not saved."""
    names = " ".join(call_only)
    save = saving(directory, number, names)
    keep = rf" \builtin declare -p {names} >|{quote(directory)}/call;" if names else ""
    trap = quote(_TRAP.replace("@SAVE@", save).replace("@NUMBER@", str(number)))
    text = _RUN_AND_SAVE.replace("@KEEP@", keep).replace("@NUMBER@", str(number))
    return text.replace("@TRAP@", trap).replace("@SAVE@", save)


def compose_apart(number: int) -> str:
    """Return the text for `bash -c` around a command whose state is not saved."""
    return (_RESTORE + _RUN).replace("@KEEP@", "").replace("@NUMBER@", str(number))


def saving(directory: str, number: int, call_only: str = "") -> str:
    """Return the text that saves a session. After it, the shell must not run anything else.

    The state overwrites the old one, between two copies of the command's number, so that a torn state is noticed. To
    truncate the file first would make ext4 write it to the disk at once, which costs more than everything else.
    """
    where = quote(directory)
    save = _SAVE.replace("\n", " ")
    save = save.replace("@NOT_STATE@", _NOT_STATE).replace("@DIR@", where).replace("@CALL@", call_only)
    save = save.replace("@NUMBER@", str(number))
    return save if call_only else save.replace(rf"\builtin unset -v ; \builtin . {where}/call;", "")


def assignments(variables: dict[str, str]) -> str:
    """Return bash text that exports the variables of one call."""
    # Each is quoted as a whole, because `set -k` takes arguments that look like assignments away from a command.
    return "".join(f"\\builtin export {quote(f'{name}={value}')};" for name, value in variables.items())


def quote(text: str) -> str:
    """Return text as one word of bash."""
    return "'" + text.replace("'", "'\\''") + "'"
