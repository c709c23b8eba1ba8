"""The shell text around a command. It restores the state before the command, and saves it however the command ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_WHOLE: Final = b"# all of it"
_PREFIX: Final = b"_hermes_"
_PLACE: Final = re.compile(rb"@([a-z]+)")
_LOST: Final = b"hermes: the state of this session stops its shell; its variables and its directory are lost"


def quote(text: bytes) -> bytes:
    """Return text as one shell word."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def encode(text: str) -> bytes:
    """Return text as the bytes that a process gets."""
    return text.encode(errors="surrogateescape")


def first_state(variables: Mapping[str, str], directory: str) -> bytes:
    """Return the first state of a session, as shell text."""
    lines = [b"export %s=%s" % (name.encode(), quote(encode(value))) for name, value in variables.items()]
    return b"\n".join([*lines, b"export %sdir=%s" % (_PREFIX, quote(encode(directory))), _WHOLE, b""])


# The saved state can be incomplete, if its command was killed while saving. It can also end the shell that reads it,
# for example by setting a read-only variable: then the script starts again, with the session's first state.
_RESTORE: Final = b"""\
_hermes_mark=$HERMES_SANDBOX _hermes_path=$PATH
for _hermes_file in @new @state; do
[ -f "$_hermes_file" ] || [ ! -e "$_hermes_file" ] || rm -rf "$_hermes_file"
done
if [ -f @new ]; then
case $(cat @new 2>/dev/null) in *'@whole') mv -f @new @state ;; esac
fi
unset USER LOGNAME SHELL HOME LC_ALL _hermes_file
if [ "$_hermes_again" ]; then
unset _hermes_again
@first
else
trap 'PATH=$_hermes_path _hermes_again=1 HERMES_SANDBOX=$_hermes_mark
export PATH _hermes_again HERMES_SANDBOX
echo "@lost" >&2
rm -rf "@base/new" "@base/state"
exec sh "$0"' EXIT
[ ! -r @state ] || . @state
trap - EXIT
fi
unset _hermes_path
export HERMES_SANDBOX="$_hermes_mark"
unset OLDPWD _hermes_mark
cd -- "$_hermes_dir" 2>/dev/null || cd -- @workspace 2>/dev/null || cd /
unset _hermes_dir
_hermes_home=$PWD
"""

# It uses only commands that neither functions nor aliases can replace: special built-ins take precedence over
# functions, and a backslash disables aliases.
_SAVE: Final = b"""\
{ \\set +aefnux; } 2>/dev/null
\\trap - EXIT
\\unset -f unalias pwd echo printf cd cat mv umask [ 2>/dev/null
IFS=' '
\\umask 077
@directory
@undo
\\unset _hermes_home _hermes_save HERMES_SANDBOX
\\export _hermes_dir
{ \\export -p && \\echo '@whole'; } >|@new"""

# The command substitution drops trailing newlines. `x` protects those in the directory's name; one is pwd's own.
_HERE: Final = b"_hermes_dir=$(\\pwd 2>/dev/null && \\echo x)\n_hermes_dir=${_hermes_dir%??}"
_AWAY: Final = b"_hermes_dir=$_hermes_home"


def session_script(
    command: bytes,
    *,
    folder: str,
    workspace: str,
    first: bytes,
    cwd: str | None,
    variables: Mapping[str, str],
    merge_stderr: bool,
) -> bytes:
    """Return a script that runs a command with the session's state, and saves the state when the command ends.

    Args:
        command: Shell text to run.
        folder: Directory of the saved state.
        workspace: Directory for the command if the session's directory no longer exists.
        first: The first state of the session.
        cwd: Absolute directory for this command only.
        variables: Environment variables for this command only.
        merge_stderr: Whether standard error goes to the pipe of standard output.
    """
    save = _fill(
        _SAVE,
        directory=_HERE if cwd is None else _AWAY,
        undo=b"\n".join(_undo(number, name) for number, name in enumerate(variables)),
        folder=folder,
    )
    lines = [b"exec 2>&1"] if merge_stderr else []
    lines.append(_fill(_RESTORE, folder=folder, workspace=quote(encode(workspace)), first=first))
    lines += [_apply(number, name, value) for number, (name, value) in enumerate(variables.items())]
    if cwd is not None:
        lines.append(b"cd -- %s || exit 126" % quote(encode(cwd)))
    lines += [b"_hermes_save=%s" % quote(save), b'trap "$_hermes_save" EXIT', b"eval %s" % quote(command + b"\n"), b""]
    return b"\n".join(lines)


def _fill(text: bytes, *, folder: str, **values: bytes) -> bytes:
    base = encode(folder)
    places = {
        "whole": _WHOLE,
        "lost": _LOST,
        "base": base,
        "new": quote(base + b"/new"),
        "state": quote(base + b"/state"),
        **values,
    }
    parts = _PLACE.split(text)
    # An inserted value can look like a placeholder, so the text is split first.
    parts[1::2] = [places[name.decode()] for name in parts[1::2]]
    return b"".join(parts)


def _apply(number: int, name: str, value: str) -> bytes:
    known = name.encode()
    remember = b"%sset%d=${%s+x} %sold%d=${%s-}" % (_PREFIX, number, known, _PREFIX, number, known)
    return remember + b"\nexport %s=%s" % (known, quote(encode(value)))


def _undo(number: int, name: str) -> bytes:
    known = name.encode()
    restore = b'\\export %s="$%sold%d"' % (known, _PREFIX, number)
    choice = b"case $%sset%d in x) %s ;; *) \\unset %s ;; esac" % (_PREFIX, number, restore, known)
    return choice + b"\n\\unset %sset%d %sold%d" % (_PREFIX, number, _PREFIX, number)
