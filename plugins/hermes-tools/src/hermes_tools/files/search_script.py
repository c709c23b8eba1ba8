"""Builds the shell script that searches, and parses its results."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

RESULT_LIMIT: Final = 8 * 2**20
"""Maximum bytes of raw results that are read."""

STATUS_DONE: Final = "done"
STATUS_BAD_PATTERN: Final = "bad_pattern"
STATUS_NO_MATCHER: Final = "no_matcher"
STATUS_NO_PATH: Final = "no_path"

# The same pipeline for each matcher, so that ripgrep and grep search the same files in the same order. The script runs
# in a separate shell, so that aliases, functions and options of the session (set -e, noclobber) do not affect it and
# the session does not change. It prints its status as a word, because with set -e a failing command could end a
# session.
_SCRIPT: Final = r"""
export LC_ALL=C
end() { printf '%s\n' "$1"; cat "$dir/errors" 2>/dev/null | head -c 2000; exit 0; }
mkdir -p -m 700 "$dir" || end failed
[ -e "$root" ] || end no_path
list() {
  find -H "$root" @PRUNE@ -type f @NAMES@ -print0 2>>"$dir/errors" | sort -z
}
matching() { xargs -0 -r "$@" 2>>"$dir/errors"; }
cut() { head -c @LIMIT@ >"$dir/found"; }
if [ "$mode" = files ]; then list | cut; end done; fi
if command -v rg >/dev/null 2>&1; then
  set -- rg --no-config --color never --no-heading -j1 --null -H
elif command -v grep >/dev/null 2>&1; then
  dialect=-E; null=
  echo a | grep -P a >/dev/null 2>&1 && dialect=-P
  echo a | grep -HZ a >/dev/null 2>&1 && null=-Z
  set -- grep "$dialect" $null -I -H
else
  end no_matcher
fi
"$@" -e "$pattern" -- /dev/null >/dev/null 2>"$dir/errors"
[ $? -le 1 ] || end bad_pattern
case $mode in
  files_only) list | matching "$@" -l -e "$pattern" -- | cut ;;
  count) list | matching "$@" -c -e "$pattern" -- | cut ;;
  *) list | matching "$@" -n -C "$context" -e "$pattern" -- | cut ;;
esac
end done
"""

_VERSION_CONTROL: Final = (".git", ".hg", ".svn")
# The time of each expression grows only with the length of a line. This matters because nothing else runs in this
# process meanwhile, and a model that has replaced the matcher in its sandbox chooses the input.
_NUMBER: Final = re.compile(rb"(\d{1,18})([:-])")
_COUNT: Final = re.compile(rb"\d{1,18}")
_PLAIN_RECORD: Final = re.compile(rb"^(.+?)([:-])(\d{1,18})\2(.*)$", re.MULTILINE)
_PLAIN_COUNT: Final = re.compile(rb"^(.+):(\d{1,18})$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search below `root`. The raw result is written to `directory`."""

    mode: str
    pattern: str
    root: str
    directory: str
    globs: tuple[str, ...] = ()
    context: int = 0


@dataclass(slots=True)
class Match:
    """A matching line with the lines before and after it."""

    path: str
    line: int
    text: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def search_command(query: Query) -> str:
    """Return the bash command that runs a query. All values from the model are quoted."""
    values: Mapping[str, str] = {
        "mode": query.mode,
        "pattern": query.pattern,
        "root": f"./{query.root}" if query.root.startswith("-") else query.root,
        "dir": query.directory,
        "context": str(query.context),
    }
    globs = [*query.globs, query.pattern] if query.mode == "files" else list(query.globs)
    names = " ".join(_name_test(glob) for glob in globs)
    inside = query.root.rstrip("/").rpartition("/")[2] in _VERSION_CONTROL
    prune = "" if inside else r"\( " + " -o ".join(f"-name {name}" for name in _VERSION_CONTROL) + r" \) -prune -o"
    script = _SCRIPT.replace("@PRUNE@", prune).replace("@LIMIT@", str(RESULT_LIMIT)).replace("@NAMES@", names)
    head = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    return f"/bin/sh -c {shlex.quote(head + script)}"


def _name_test(glob: str) -> str:
    """Translate a glob into a test of `find`. A word without wildcards matches any part of the name."""
    if not set(glob) & set("*?[{"):
        glob = f"*{glob}*"
    tests = []
    for one in expand_braces(glob):
        folder, _, name = one.removeprefix("./").removeprefix("/").rpartition("/")
        test = f"-name {shlex.quote(name or '*')}"
        folder = folder.removeprefix("**").removeprefix("/").replace("**", "*")
        tests.append(rf"\( -path {shlex.quote(f'*/{folder}/*')} {test} \)" if folder else test)
    return r"\( " + " -o ".join(tests) + r" \)"


def expand_braces(glob: str) -> list[str]:
    """Expand `*.{ts,tsx}` into its alternatives, at most 64, because `find` does not support braces."""
    found = [glob]
    while len(found) < 64 and (match := re.search(r"\{([^{}]*,[^{}]*)\}", found[0])):
        current = found.pop(0)
        found += [current[: match.start()] + part + current[match.end() :] for part in match[1].split(",")]
    return found


def read_paths(raw: bytes) -> list[str]:
    """Parse a list of paths."""
    parts = raw.split(b"\0") if b"\0" in raw else raw.split(b"\n")
    return [_path(part) for part in parts if part]


def read_counts(raw: bytes) -> list[tuple[str, int]]:
    """Parse the number of matching lines per file. Files without a match are skipped."""
    if b"\0" in raw:
        pairs = [(path, line) for path, line in _lines_of_files(raw) if _COUNT.fullmatch(line)]
    else:
        pairs = _PLAIN_COUNT.findall(raw)
    return [(_path(path), int(count)) for path, count in pairs if int(count)]


def read_matches(raw: bytes, context: int) -> list[Match]:
    """Parse matching lines. A context line is added to every match that it is close to."""
    matches: list[Match] = []
    waiting: list[tuple[str, int, str]] = []
    for path, line, is_match, text in _records(raw):
        for match in matches[-context:] if context else ():
            if match.path == path and match.line < line <= match.line + context:
                match.after.append(text)
        if is_match:
            near = [words for name, at, words in waiting if name == path and line - context <= at < line]
            matches.append(Match(path, line, text, before=near))
        waiting = [*waiting, (path, line, text)][-context:] if context else []
    return matches


def _records(raw: bytes) -> Iterator[tuple[str, int, bool, str]]:
    if b"\0" in raw:
        for path, line in _lines_of_files(b"\n".join(line for line in raw.split(b"\n") if not _is_notice(line))):
            if number := _NUMBER.match(line):
                yield _path(path.removeprefix(b"--\n")), int(number[1]), number[2] == b":", _text(line[number.end() :])
        return
    for path, mark, line, text in _PLAIN_RECORD.findall(raw):
        yield _path(path), int(line), mark == b":", _text(text)


def _lines_of_files(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each path, which ends with a NUL, and the rest of its line."""
    at = 0
    while (nul := raw.find(b"\0", at)) >= 0:
        end = raw.find(b"\n", nul)
        end = len(raw) if end < 0 else end
        yield raw[at:nul], raw[nul + 1 : end]
        at = end + 1


def _is_notice(line: bytes) -> bool:
    """Return whether this line is a matcher's notice that it skipped a binary file."""
    if b"\0" in line or not line.endswith(b")"):
        return False
    return b": binary file matches (" in line or (line.startswith(b"Binary file ") and b" matches (" in line)


def _path(data: bytes) -> str:
    return data.decode(errors="replace").removeprefix("./")


def _text(data: bytes) -> str:
    return data.removesuffix(b"\r").decode(errors="replace")
