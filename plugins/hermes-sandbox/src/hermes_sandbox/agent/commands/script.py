"""The bash text around every command: it restores the session before, and saves it after, without a single fork.

Nothing here is in a variable that an earlier command can have made read-only: its name has the command's number, which
nobody knows beforehand. Whether a command has begun is told on the descriptor that it came by, after all that can keep
it from beginning.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

# What bash sets by itself, or what would change its behaviour when assigned: not part of a session.
_NOT_STATE = (
    "BASH BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING BASH_LINENO"
    " BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS"
    " FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OPTERR OPTIND OSTYPE PIPESTATUS PWD RANDOM SECONDS SHLVL SRANDOM"
    " _ _hermes_@NUMBER@ HERMES_SANDBOX"
)

# Nothing in it ends a shell with errexit, no trap writes into the state, and a limit to the size of files does not end
# the shell with another code than the command's. Order matters when it is read back: functions before aliases.
_SAVE = r"""{ { \builtin trap - DEBUG ERR RETURN; \builtin trap '' XFSZ; } >/dev/null;
{ \builtin printf '%s\0' @NUMBER@ "$BASHOPTS" "$SHELLOPTS"; \builtin unset -v @CALL@; \builtin . @DIR@/call;
\builtin unset -v @NOT_STATE@;
\builtin declare -p; \builtin declare -f; \builtin declare -Fx; \builtin alias -p; \builtin umask -p;
\builtin printf '\0'; \builtin pwd; \builtin printf '\0%s\0' @NUMBER@; } 1<>@DIR@/state; } || \builtin :"""

# Descriptor 3 holds the command, the call's own environment and the saved session, each ended by a NUL. Everything is
# on one line: bash reads a line at a time, so no alias of the session can reach into it, and line numbers are right.
_RESTORE = (
    r"{ \builtin mapfile -d '' -u 3 _hermes_@NUMBER@; \builtin shopt -s expand_aliases;"
    r' \builtin unset -v BASH_EXECUTION_STRING; \builtin eval "${_hermes_@NUMBER@[2]}";@KEEP@ } >/dev/null 2>&1;'
    r' \builtin eval "${_hermes_@NUMBER@[1]}"; _hermes_@NUMBER@=("${_hermes_@NUMBER@[0]}");'
)
_RUN = (
    r""" if \builtin eval '\builtin printf + >&3'; then \builtin eval -- "$_hermes_@NUMBER@" 3>&-;"""
    r""" else \builtin printf ++ >&3; fi"""
)
# The second `set` is for a function named `builtin`, whose parameters are its own; the second `exit` for a `builtin`
# that is gone. A restricted shell redirects nothing, and does not know any more how the command has ended.
_RUN_AND_SAVE = (
    rf"{_RESTORE} \builtin trap -- @TRAP@ EXIT;{_RUN}; {{ _hermes_@NUMBER@=$?;"
    r' \builtin set -- "$_hermes_@NUMBER@" @NUMBER@; [[ ${2-} == @NUMBER@ ]] || \set -- "$_hermes_@NUMBER@" @NUMBER@;'
    r' @SAVE@; \builtin set +x; } >/dev/null 2>&1; \builtin exit "${1:-1}" || \exit "${1:-1}"'
)
_TRAP = r"{ [[ ${2-} == @NUMBER@ ]] || { @SAVE@; }; } >/dev/null 2>&1"

_USUAL_OPTIONS = b"braceexpand:hashall:interactive-comments"
_NAMES = re.compile(rb"[a-z0-9_:-]*")


class SavedState(NamedTuple):
    """What a session is restored by: bash text, and text for the line of the command itself.

    The second sets options, because errexit, nounset or xtrace would hit the restoring itself.
    """

    text: bytes
    options: bytes


NO_STATE = SavedState(b"", b"")


def read_state(parts: list[bytes], number: int) -> tuple[SavedState, bytes] | None:
    """Return the state and the directory in what a command has saved; None if it is torn, or another command's."""
    expected = str(number).encode()
    if len(parts) != 7 or not parts[0] == parts[5] == expected or not all(map(_NAMES.fullmatch, parts[1:3])):
        return None
    # Before the functions, which can be written with extended patterns.
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
    """Return the text for `bash -c`; changes to the variables in `call_only` are forgotten afterwards."""
    names = " ".join(call_only)
    save = saving(directory, number, names)
    keep = rf" \builtin declare -p {names} >|{shlex.quote(directory)}/call;" if names else ""
    trap = shlex.quote(_TRAP.replace("@SAVE@", save).replace("@NUMBER@", str(number)))
    text = _RUN_AND_SAVE.replace("@KEEP@", keep).replace("@NUMBER@", str(number))
    return text.replace("@TRAP@", trap).replace("@SAVE@", save)


def compose_apart(number: int) -> str:
    """Return the text for `bash -c` around a command whose end is not saved."""
    return (_RESTORE + _RUN).replace("@KEEP@", "").replace("@NUMBER@", str(number))


def saving(directory: str, number: int, call_only: str = "") -> str:
    """Return the text that saves a session, after which the shell is good for nothing else.

    The state is written over the old one, between two copies of the command's number, so that a torn one is noticed.
    Emptying the file first would make ext4 write it to the disk at once, which costs more than all the rest.
    """
    where = shlex.quote(directory)
    save = _SAVE.replace("\n", " ")
    save = save.replace("@NOT_STATE@", _NOT_STATE).replace("@DIR@", where).replace("@CALL@", call_only)
    save = save.replace("@NUMBER@", str(number))
    return save if call_only else save.replace(rf"\builtin unset -v ; \builtin . {where}/call;", "")


def assignments(variables: dict[str, str]) -> str:
    """Return bash text that exports the variables of one call."""
    # Quoted as a whole: `set -k` takes what looks like an assignment away from a command.
    return "".join(f"\\builtin export {quote_whole(f'{name}={value}')};" for name, value in variables.items())


def quote_whole(text: str) -> str:
    """Return text in quotes, needed or not."""
    return "'" + text.replace("'", "'\\''") + "'"
