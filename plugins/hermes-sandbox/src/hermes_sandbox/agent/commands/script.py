"""The bash text around every command: it restores the session before, and saves it after, without a single fork."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

# What bash sets by itself, or what would change its behaviour when assigned: not part of a session.
_NOT_STATE = (
    "BASH BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING BASH_LINENO"
    " BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS"
    " FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OPTERR OPTIND OSTYPE PIPESTATUS PWD RANDOM SECONDS SHLVL SRANDOM"
    " _ _hermes_b _hermes_c _hermes_o _hermes_s _hermes_saved HERMES_SANDBOX"
)

# Order matters when the text is read back: `shopt` (extglob) before functions, functions before aliases. Options come
# back through _hermes_o, last of all, because errexit, nounset or xtrace would hit the restoring itself.
_SAVE = r"""{ [[ -v _hermes_saved ]] || {
\builtin printf '%s\0' @NUMBER@; \builtin unset -v @CALL@ _hermes_saved; \builtin . @DIR@/call;
[[ $BASHOPTS == "${_hermes_b-}" ]] || \builtin shopt -p;
[[ $SHELLOPTS == "${_hermes_s-}" ]] || \builtin printf '_hermes_o="\\builtin set +o braceexpand +o hashall
 +o interactive-comments %s;"\n' "${SHELLOPTS:+-o ${SHELLOPTS//:/ -o }}";
\builtin unset -v @NOT_STATE@;
\builtin declare -p; \builtin declare -f; \builtin declare -Fx; \builtin alias -p; \builtin umask -p;
\builtin printf '\0'; \builtin pwd; \builtin printf '\0%s\0' @NUMBER@; } 1<>@DIR@/state; } 2>/dev/null || \builtin :"""

# Descriptor 3 holds the command, the call's own environment and the saved session, each ended by a NUL. Everything is
# on one line: bash reads a line at a time, so no alias of the session can reach into it, and line numbers are right.
_RESTORE = (
    r"{ \builtin mapfile -d '' -u 3 _hermes_c; exec 3<&-; \builtin shopt -s expand_aliases;"
    r" \builtin unset -v BASH_EXECUTION_STRING; _hermes_b=$BASHOPTS _hermes_s=$SHELLOPTS _hermes_o=;"
    r' \builtin eval "${_hermes_c[2]}";@KEEP@ } >/dev/null 2>&1; \builtin eval "${_hermes_c[1]}";'
    r' _hermes_c=("${_hermes_c[0]}");'
)
_RUN = (
    _RESTORE + r' \builtin trap -- @TRAP@ EXIT; \builtin eval -- "${_hermes_o}${_hermes_c}";'
    r' { \builtin set -- "$?"; @SAVE@; _hermes_saved=1; \builtin set +x; } 2>/dev/null; \builtin exit "$1"'
)

COMPOSED_APART = _RESTORE.replace("@KEEP@", "") + r' \builtin eval -- "${_hermes_o}${_hermes_c}"'
"""Text for `bash -c` around a command whose end is not saved."""


def compose(directory: str, number: int, call_only: Iterable[str]) -> str:
    """Return the text for `bash -c`; changes to the variables in `call_only` are forgotten afterwards."""
    names = " ".join(call_only)
    save = saving(directory, number, names)
    keep = rf" \builtin declare -p {names} >|{shlex.quote(directory)}/call;" if names else ""
    return _RUN.replace("@KEEP@", keep).replace("@TRAP@", shlex.quote(save)).replace("@SAVE@", save)


def saving(directory: str, number: int, call_only: str = "") -> str:
    """Return the text that saves a session, after which the shell is good for nothing else.

    The state is written over the old one, between two copies of the command's number, so that a torn one is noticed.
    Emptying the file first would make ext4 write it to the disk at once, which costs more than all the rest.
    """
    where = shlex.quote(directory)
    save = _SAVE.replace("\n", " ")
    save = save.replace("@NOT_STATE@", _NOT_STATE).replace("@DIR@", where).replace("@CALL@", call_only)
    save = save.replace("@NUMBER@", str(number))
    return save if call_only else save.replace(rf"\builtin . {where}/call;", "")


def assignments(variables: dict[str, str]) -> str:
    """Return bash text that exports the variables of one call."""
    return "".join(f"\\builtin export {name}={shlex.quote(value)};" for name, value in variables.items())
