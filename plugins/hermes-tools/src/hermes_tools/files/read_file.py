"""The tool `read_file`: returns a window of a text file, with line numbers."""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.sandbox import FileStat, Sandbox
from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_core.tooling import expand_home
from hermes_tools.results import explain, failure, json_result

LINE_LIMIT: Final = 2000
ANSWER_LIMIT: Final = 100_000
SCAN_LIMIT: Final = 64 * 2**20
"""Maximum bytes that are scanned for line numbers. A tool call must not read a whole disk image."""

_BLOCK: Final = 2**20
_SNIFFED: Final = 8192
_TEXT_CONTROLS: Final = b"\t\n\r\f\b\x1b"


class ReadFileTool:
    """Reads files as they are: content is not hidden, rewritten, or shortened because of earlier reads."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return the lines `offset` … `offset + limit - 1` of `path`."""
        path, offset, limit = arguments["path"], arguments.get("offset", 1), arguments.get("limit", 500)
        try:
            place = await expand_home(path, context.sandbox)
            window = await _scan(context.sandbox, place, _Window(first=offset, last=offset + limit - 1))
        except FileNotFoundError as error:
            similar = await similar_files(context.sandbox, path)
            return failure(explain(error, path), similar_files=similar)
        except IsADirectoryError:
            return failure(f"{path} is a directory. List it with search_files (target 'files') or with ls.")
        except OSError as error:
            return failure(explain(error, path))
        if window.binary:
            advice = "Look at it in the terminal with file, xxd or strings."
            return failure(f"{path} is a binary file of {window.size} bytes. {advice}", file_size=window.size)
        return await asyncio.to_thread(_answer, path, window)


@dataclass(slots=True)
class _Window:
    """Counts lines while blocks arrive, and keeps those in the window, each up to the line limit."""

    first: int
    last: int
    size: int = 0
    binary: bool = False
    complete: bool = True
    number: int = 1
    kept: list[tuple[int, bytes, int]] = field(default_factory=list)
    current: bytes = b""
    length: int = 0

    def feed(self, block: bytes) -> None:
        # Most blocks of a large file have no line of the window: their newlines are counted without splitting.
        if self.number > self.last or self.number + block.count(b"\n") < self.first:
            self._count(block)
            return
        *ends, rest = block.split(b"\n")
        for piece in ends:
            self._extend(piece)
            self._close()
        self._extend(rest)

    def finish(self) -> None:
        if self.length:
            self._close()

    @property
    def total(self) -> int:
        return self.number - 1

    def _count(self, block: bytes) -> None:
        newlines = block.count(b"\n")
        tail = len(block) - (block.rfind(b"\n") + 1)
        self.number += newlines
        self.length = tail if newlines else self.length + tail

    def _extend(self, piece: bytes) -> None:
        self.length += len(piece)
        if self.first <= self.number <= self.last and len(self.current) < 4 * LINE_LIMIT:
            self.current += piece[: 4 * LINE_LIMIT]

    def _close(self) -> None:
        if self.first <= self.number <= self.last:
            self.kept.append((self.number, self.current, self.length))
        self.number, self.current, self.length = self.number + 1, b"", 0


async def _scan(sandbox: Sandbox, path: str, window: _Window) -> _Window:
    entry = await sandbox.stat(path)
    if entry.kind == "directory":
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    if entry.kind != "file":
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket", path)
    window.size = entry.size
    position = 0
    while position < SCAN_LIMIT:
        block = await sandbox.read_file(path, offset=position, length=_BLOCK)
        if position == 0 and looks_binary(block[:_SNIFFED]):
            window.binary = True
            return window
        # A block can have a million lines, too many to process on the event loop.
        await asyncio.to_thread(window.feed, block.removeprefix(b"\xef\xbb\xbf") if position == 0 else block)
        position += len(block)
        if len(block) < _BLOCK:
            break
    else:
        window.complete = False
    window.finish()
    return window


def looks_binary(start: bytes) -> bool:
    """Return whether a file is binary: its first bytes contain a NUL, or more than 30 % control characters."""
    if b"\0" in start:
        return True
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in start)
    return controls * 10 > len(start) * 3


def _answer(path: str, window: _Window) -> ToolResult:
    content = "\n".join(f"{number:6d}|{_line(data, length)}" for number, data, length in window.kept)
    if len(content) > ANSWER_LIMIT:
        fitting = max(1, len(window.kept) * ANSWER_LIMIT // len(content) * 9 // 10)
        return failure(
            f"These {len(window.kept)} lines have {len(content)} characters, more than the {ANSWER_LIMIT} of an "
            f"answer. Read a smaller part, with about limit={fitting}, or search with search_files.",
            total_lines=window.total,
            file_size=window.size,
        )
    truncated = window.total > window.last or not window.complete
    fields: dict[str, Any] = {"content": content, "total_lines": window.total, "truncated": truncated}
    fields["file_size"] = window.size
    if not window.complete:
        fields["total_lines"] = None
        fields["note"] = f"Only the first {SCAN_LIMIT} bytes were read; use sed -n in the terminal for later lines."
    elif truncated:
        fields["hint"] = f"Continue with offset={window.last + 1}."
    elif window.first > window.total > 0:
        fields["hint"] = f"The file ends at line {window.total}."
    return json_result(path=path, **fields)


def _line(data: bytes, length: int) -> str:
    text = data.removesuffix(b"\r").decode(errors="replace")
    if len(text) <= LINE_LIMIT and length == len(data):
        return text
    shown = text[: LINE_LIMIT - 50]
    return f"{shown} [line cut, {length} bytes in total]"


async def similar_files(sandbox: Sandbox, path: str) -> list[str]:
    """List up to five files in the directory of a missing path whose names are similar to its name."""
    try:
        folder, name = posixpath.split(await expand_home(path, sandbox))
        entries = await sandbox.list_dir(folder or ".")
    except OSError:
        return []
    return await asyncio.to_thread(_like, name, posixpath.dirname(path), entries)


def _like(name: str, folder: str, entries: Sequence[FileStat]) -> list[str]:
    from rapidfuzz import fuzz, process

    names = {entry.path: entry.path.lower() for entry in entries}
    near = process.extract(name.lower(), names, scorer=fuzz.ratio, limit=5, score_cutoff=50)
    return [posixpath.join(folder, key) for _, _, key in near]
