"""Reports the state of an interactive bash outside the screen: in a status file, and by invisible marks in the output.

The file says whether the shell waits at its prompt, the number of the prompt, and the exit code of the command before
it. Only the file decides whether a command has ended, and how. The marks, which are escape sequences with a nonce, say
where a command's own output begins and ends.
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

# The two functions must not change what the user of the shell can see: $?, options, history, variables of common names.
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
    """State of the shell: it waits at prompt `number`, or runs the command that was typed there.

    At a prompt, `exit_code` is the one of the command before it, or None if it was lost.
    """

    kind: Literal["prompt", "running"]
    number: int
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in the output: `C` comes before the output of a command, `D` after it."""

    kind: str
    number: int


def startup_text(directory: str, nonce: str) -> bytes:
    """Return the startup file of the shell."""
    text = _STARTUP.replace("@NONCE@", nonce)
    for name in (STATUS, SHOWN):
        text = text.replace(f"@{name.upper()}@", shlex.quote(f"{directory}/{name}"))
    return text.encode()


def shell_command(directory: str) -> str:
    """Return the bash command that replaces itself by the interactive shell."""
    return f'exec "$BASH" --noprofile --rcfile {shlex.quote(f"{directory}/{STARTUP}")} -i'


def trigger(directory: str) -> str:
    """Return the text to type to run the command from its file. bash does not add it to its history."""
    return f" . {shlex.quote(f'{directory}/{COMMAND}')}"


def shown_instead(command: str, *, rows: int) -> bytes:
    """Return terminal output that shows the command in place of the trigger, which occupies `rows` rows."""
    text = command if len(command) <= _LONGEST_SHOWN else f"{command[:_LONGEST_SHOWN]}…"
    plain = re.sub(r"[^\n\t -~\xa0-\U0010ffff]", "?", text.rstrip("\n")).replace("\n", "\n> ")
    return f"\x1b[{rows}A\r\x1b[J$ {plain}".encode()


def read_state(data: bytes) -> ShellState | None:
    """Parse the status file. Return None if it is being written or has other content."""
    match = re.fullmatch(rb"(prompt|running) (\d{1,18}) (\d{1,3})\n", data)
    if match is None:
        return None
    kind: Literal["prompt", "running"] = "prompt" if match[1] == b"prompt" else "running"
    return ShellState(kind=kind, number=int(match[2]), exit_code=int(match[3]))


class MarkReader:
    """Extracts the marks from a stream of bytes that arrives in pieces."""

    def __init__(self, nonce: str) -> None:
        begin = b"\x1b]6973;" + nonce.encode() + b";"
        self._mark = re.compile(re.escape(begin) + rb"([CD]);(\d{1,18})\x07")
        self._begin = begin
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes | Mark]:
        """Return the output and the marks, in order. The beginning of a mark is kept until its end arrives."""
        data, found = self._rest + data, list[bytes | Mark]()
        position = 0
        for match in self._mark.finditer(data):
            found += [data[position : match.start()], Mark(match[1].decode(), int(match[2]))]
            position = match.end()
        end = self._unfinished_start(data, position)
        self._rest = data[end:]
        return [*found, data[position:end]]

    def strip(self, data: bytes) -> bytes:
        """Return a complete piece of output without the marks."""
        return self._mark.sub(b"", data)

    def _unfinished_start(self, data: bytes, position: int) -> int:
        at = data.rfind(b"\x1b", position)
        if at < 0:
            return len(data)
        tail = data[at:]
        longest = len(self._begin) + 24
        is_begun = self._begin.startswith(tail) or (tail.startswith(self._begin) and b"\x07" not in tail)
        return at if is_begun and len(tail) < longest else len(data)
