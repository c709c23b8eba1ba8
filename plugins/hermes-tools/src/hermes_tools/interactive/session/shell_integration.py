"""How an interactive bash tells beside the screen what it does: a file with a number, and marks nobody sees.

The file says whether the shell waits at its prompt, which prompt it is, and the exit code before it. Only the file
decides whether a command has ended, and how. The marks in the output, escape sequences with a nonce, say where a
command's own output begins and ends.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal

STATUS: Final = "status"
STARTUP: Final = "startup"
COMMAND: Final = "command"
SHOWN: Final = "shown"
_LONGEST_SHOWN: Final = 2000

# `prompt` and `begin` must not change what the shell's user sees: $?, options, history, variables of common names.
_STARTUP: Final = r"""unset -v HISTFILE PROMPT_COMMAND
HISTCONTROL=ignorespace
: "${LANG:=C.UTF-8}"; export LANG
bind 'set enable-bracketed-paste off' 2>/dev/null
bind 'set bell-style none' 2>/dev/null
_hermes_prompt() {
  \builtin local status=$?
  _hermes_number=$((${_hermes_number:-0} + 1))
  \builtin printf '\033]6973;@NONCE@;D;%s\007' "$_hermes_number" >/dev/tty
  \builtin printf 'prompt %s %s\n' "$_hermes_number" "$status" >|@STATUS@
}
_hermes_begin() {
  \builtin printf 'running %s 0\n' "${_hermes_number:-0}" >|@STATUS@
  [[ ! -s @SHOWN@ ]] || \builtin printf '%s\n' "$(<@SHOWN@)"
  \builtin printf '\033]6973;@NONCE@;C;%s\007' "${_hermes_number:-0}"
}
PROMPT_COMMAND='{ _hermes_prompt; } 2>/dev/null'
PS0='$( { _hermes_begin; } 2>/dev/null )'
PS1='$ '
PS2='> '
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellState:
    """Where the shell is: at its prompt `number`, with the exit code before it, or running what came after it.

    The exit code is None when it was lost.
    """

    kind: Literal["prompt", "running"]
    number: int
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the output: `C`, what follows is a command's output; `D`, it has ended."""

    kind: str
    number: int


def startup_text(directory: str, nonce: str) -> bytes:
    """Return what the shell reads at its start."""
    text = _STARTUP.replace("@NONCE@", nonce)
    for name in (STATUS, SHOWN):
        text = text.replace(f"@{name.upper()}@", shlex.quote(f"{directory}/{name}"))
    return text.encode()


def shell_command(directory: str) -> str:
    """Return the bash text that becomes the interactive shell."""
    return f'exec "$BASH" --noprofile --rcfile {shlex.quote(f"{directory}/{STARTUP}")} -i'


def trigger(directory: str) -> str:
    """Return what is typed to run the command that has been written to a file; bash forgets it in its history."""
    return f" . {shlex.quote(f'{directory}/{COMMAND}')}"


def shown_instead(command: str, *, rows: int) -> bytes:
    """Return what replaces the trigger, which takes up `rows` rows, on the screen: the command."""
    text = command if len(command) <= _LONGEST_SHOWN else f"{command[:_LONGEST_SHOWN]}…"
    plain = re.sub(r"[^\n\t -~\xa0-\U0010ffff]", "?", text.rstrip("\n")).replace("\n", "\n> ")
    return f"\x1b[{rows}A\r\x1b[J$ {plain}".encode()


def read_state(data: bytes) -> ShellState | None:
    """Read the file; None when it is just being written, or holds something else."""
    match = re.fullmatch(rb"(prompt|running) (\d{1,18}) (\d{1,3})\n", data)
    if match is None:
        return None
    kind: Literal["prompt", "running"] = "prompt" if match[1] == b"prompt" else "running"
    return ShellState(kind=kind, number=int(match[2]), exit_code=int(match[3]))


class MarkReader:
    """Cuts the marks out of a stream of bytes that comes in pieces."""

    def __init__(self, nonce: str) -> None:
        begin = b"\x1b]6973;" + nonce.encode() + b";"
        self._mark = re.compile(re.escape(begin) + rb"([CD]);(\d{1,18})\x07")
        self._begin = begin
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes | Mark]:
        """Return what has come, in order; the beginning of a mark is kept until its end has come."""
        data, found = self._rest + data, list[bytes | Mark]()
        position = 0
        for match in self._mark.finditer(data):
            found += [data[position : match.start()], Mark(match[1].decode(), int(match[2]))]
            position = match.end()
        end = self._unfinished_start(data, position)
        self._rest = data[end:]
        return [*found, data[position:end]]

    def strip(self, data: bytes) -> bytes:
        """Return a whole piece of output without the marks."""
        return self._mark.sub(b"", data)

    def _unfinished_start(self, data: bytes, position: int) -> int:
        at = data.rfind(b"\x1b", position)
        if at < 0:
            return len(data)
        tail = data[at:]
        longest = len(self._begin) + 24
        is_begun = self._begin.startswith(tail) or (tail.startswith(self._begin) and b"\x07" not in tail)
        return at if is_begun and len(tail) < longest else len(data)
