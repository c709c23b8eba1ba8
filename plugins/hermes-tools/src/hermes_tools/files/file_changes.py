"""The changes of one call of the tool `patch`, made in a draft and written at its end."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.sandbox import Sandbox
from hermes_core.contracts.tool import ToolResult
from hermes_core.tooling import expand_home
from hermes_tools.files.fuzzy import find_edits
from hermes_tools.files.hunks import place_hunks
from hermes_tools.files.matching import SIZE_LIMIT, Effort, MatchError
from hermes_tools.files.read_file import looks_binary, similar_files
from hermes_tools.files.textfile import TextFile, unified_diff
from hermes_tools.files.v4a import FileChange, PatchFormatError, parse_patch
from hermes_tools.results import explain, failure, json_result

_TOTAL_LIMIT: Final = 4 * SIZE_LIMIT


async def change_files(arguments: dict[str, Any], sandbox: Sandbox) -> ToolResult:
    """Apply the change that the arguments of the tool describe, or explain why nothing was changed."""
    draft = _Draft(sandbox)
    try:
        if arguments.get("mode", "replace") == "patch":
            extra = await _apply_patch(draft, arguments)
        else:
            extra = await _replace(draft, arguments)
        diff = await draft.diff()
        await draft.commit()
    except (MatchError, PatchFormatError, _RefusedError) as error:
        return failure(str(error))
    except FileNotFoundError as error:
        path = str(error.filename)
        return failure(explain(error, path), similar_files=await similar_files(sandbox, path))
    except OSError as error:
        return failure(f"{explain(error, str(error.filename))}. Nothing was changed.")
    return json_result(success=True, **draft.summary(), **extra, diff=diff)


class _RefusedError(ValueError):
    """The arguments of the call cannot be applied. The message is for the model."""


@dataclass(slots=True)
class _Entry:
    """The content of a file before and after the change; None if the file does not exist."""

    before: bytes | None
    after: bytes | None
    mode: int | None


@dataclass(slots=True)
class _Draft:
    """The future content of the files. Nothing is written to the sandbox before `commit`."""

    sandbox: Sandbox
    search_effort: Effort = field(default_factory=Effort)
    diff_effort: Effort = field(default_factory=Effort)
    entries: dict[str, _Entry] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    async def entry(self, path: str) -> _Entry:
        place = posixpath.normpath(posixpath.join(self.sandbox.workspace, await expand_home(path, self.sandbox)))
        self.names.setdefault(place, path)
        if place not in self.entries:
            self.entries[place] = await self._load(place, path)
        return self.entries[place]

    async def existing(self, path: str) -> tuple[_Entry, bytes]:
        entry = await self.entry(path)
        if entry.after is None:
            raise FileNotFoundError(2, "No such file", path)
        return entry, entry.after

    async def text(self, path: str) -> tuple[_Entry, bytes]:
        entry, data = await self.existing(path)
        if looks_binary(data[:8192]):
            raise _RefusedError(f"{path} is a binary file and cannot be patched.")
        return entry, data

    async def _load(self, place: str, path: str) -> _Entry:
        room = min(SIZE_LIMIT, _TOTAL_LIMIT - sum(len(entry.before or b"") for entry in self.entries.values()))
        try:
            stat = await self.sandbox.stat(place)
            data = await self.sandbox.read_file(place, length=room + 1)
        except FileNotFoundError:
            return _Entry(None, None, None)
        except OSError as error:
            error.filename = path
            raise
        if len(data) > room:
            raise _RefusedError(
                f"{path} has {max(len(data), stat.size)} bytes, more than patch can edit: {SIZE_LIMIT} for one file, "
                f"{_TOTAL_LIMIT} for all files of a patch. Nothing was changed. Use the terminal."
            )
        return _Entry(data, data, stat.mode & 0o7777)

    def changes(self) -> dict[str, _Entry]:
        return {place: entry for place, entry in self.entries.items() if entry.before != entry.after}

    def summary(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {"files_modified": [], "files_created": [], "files_deleted": []}
        for place, entry in self.changes().items():
            kind = "created" if entry.before is None else "deleted" if entry.after is None else "modified"
            groups[f"files_{kind}"].append(self.names[place])
        return groups

    async def diff(self) -> str:
        if not self.changes():
            raise _RefusedError("The change would leave every file as it is. Nothing was changed.")
        return await asyncio.to_thread(self._diff)

    def _diff(self) -> str:
        parts = []
        for place, entry in self.changes().items():
            name = self.names[place].lstrip("/")
            old = "/dev/null" if entry.before is None else f"a/{name}"
            new = "/dev/null" if entry.after is None else f"b/{name}"
            if looks_binary((entry.before or b"")[:8192] + (entry.after or b"")[:8192]):
                parts.append(f"Binary files {old} and {new} differ\n")
            else:
                parts.append(unified_diff(_text(entry.before), _text(entry.after), old, new, effort=self.diff_effort))
        return "".join(parts)

    async def commit(self) -> None:
        """Write all changed files, and delete last. If a write fails, restore the files that were already written."""
        done: list[tuple[str, _Entry]] = []
        for place, entry in sorted(self.changes().items(), key=lambda item: item[1].after is None):
            try:
                await self._store(place, entry.after, entry.mode)
            except OSError as error:
                await self._undo(done)
                error.filename = self.names[place]
                raise
            done.append((place, entry))

    async def _store(self, place: str, data: bytes | None, mode: int | None) -> None:
        if data is None:
            await self.sandbox.remove(place)
        else:
            await self.sandbox.write_file(place, data, mode=mode)

    async def _undo(self, done: list[tuple[str, _Entry]]) -> None:
        lost = []
        for place, entry in reversed(done):
            try:
                await self._store(place, entry.before, entry.mode)
            except OSError:
                lost.append(self.names[place])
        if lost:
            raise _RefusedError(f"Writing failed halfway, and these files could not be restored: {', '.join(lost)}.")


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


async def _replace(draft: _Draft, arguments: dict[str, Any]) -> dict[str, Any]:
    absent = [name for name in ("path", "old_string", "new_string") if arguments.get(name) is None]
    if absent:
        raise _RefusedError(f"Mode 'replace' needs {', '.join(absent)}. Nothing was changed.")
    path = arguments["path"]
    old, new = (arguments[name].replace("\r\n", "\n") for name in ("old_string", "new_string"))
    if not old:
        raise _RefusedError("old_string is empty; use write_file to create a file or replace all of it.")
    if old == new:
        raise _RefusedError("old_string and new_string are the same. Nothing was changed.")
    entry, data = await draft.text(path)
    every = bool(arguments.get("replace_all"))

    def apply() -> tuple[bytes, str, int]:
        file = TextFile.decode(data)
        strategy, edits = find_edits(file.text, old, new, replace_all=every, effort=draft.search_effort)
        return file.apply(edits), strategy, len(edits)

    # In a thread even for short texts: to compare them on the event loop would delay all other rollouts.
    entry.after, strategy, replacements = await asyncio.to_thread(apply)
    return _match_fields({strategy}, replacements=replacements)


async def _apply_patch(draft: _Draft, arguments: dict[str, Any]) -> dict[str, Any]:
    if not arguments.get("patch"):
        raise _RefusedError("Mode 'patch' needs patch. Nothing was changed.")
    used: set[str] = set()
    for change in await asyncio.to_thread(parse_patch, arguments["patch"]):
        match change.kind:
            case "add":
                await _add(draft, change)
            case "delete":
                entry, _ = await draft.existing(change.path)
                entry.after = None
            case "update":
                used |= await _update(draft, change)
    return _match_fields(used)


async def _add(draft: _Draft, change: FileChange) -> None:
    entry = await draft.entry(change.path)
    if entry.after is not None:
        raise _RefusedError(f"'*** Add File: {change.path}': the file exists. Nothing was changed. Use Update File.")
    entry.after = "".join(f"{line}\n" for line in change.added).encode()


async def _update(draft: _Draft, change: FileChange) -> set[str]:
    used: set[str] = set()
    if change.hunks:
        entry, data = await draft.text(change.path)

        def apply() -> tuple[bytes, set[str]]:
            file = TextFile.decode(data)
            edits, used = place_hunks(file.text, change.hunks, change.path, effort=draft.search_effort)
            return file.apply(edits), used

        entry.after, used = await asyncio.to_thread(apply)
    if change.move_to:
        source, data = await draft.existing(change.path)
        target = await draft.entry(change.move_to)
        if target.after is not None:
            raise _RefusedError(f"'*** Move to: {change.move_to}': the file exists. Nothing was changed.")
        target.after, target.mode, source.after = data, source.mode, None
    return used


def _match_fields(used: set[str], **more: Any) -> dict[str, Any]:
    strategies = sorted(used)
    fields: dict[str, Any] = {"strategy": strategies[0] if len(strategies) == 1 else strategies, **more}
    if used - {"exact"}:
        fields["note"] = "The text was not matched exactly; check the diff."
    return fields
