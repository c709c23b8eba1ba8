"""The tool `search_files`: searches file contents by regular expression, and files by name."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from typing import Any, Final

from hermes_core.contracts.sandbox import Sandbox
from hermes_core.contracts.tool import ToolContext, ToolResult
from hermes_core.tooling import expand_home, scratch_directory
from hermes_tools.files import search_script as script
from hermes_tools.files.read_file import similar_files
from hermes_tools.results import failure, json_result

SEARCH_TIMEOUT: Final = 120
LINE_LIMIT: Final = 500
_GLOB_LIMIT: Final = 1000


class SearchFilesTool:
    """Searches in a separate shell, so that the session of the rollout does not change."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return `matches`, `files` or `counts`, sorted by path, with `total_count` and `truncated`."""
        sandbox, path = context.sandbox, arguments.get("path", ".")
        texts = (arguments["pattern"], path, arguments.get("file_glob", ""))
        if any("\0" in text for text in texts):
            return failure("A pattern or a path cannot contain a NUL character.")
        files = arguments.get("target", "content") == "files"
        if len(glob := arguments["pattern"] if files else arguments.get("file_glob", "")) > _GLOB_LIMIT:
            return failure(f"A glob can have at most {_GLOB_LIMIT} characters; this one has {len(glob)}.")
        query = script.Query(
            mode="files" if files else arguments.get("output_mode", "content"),
            pattern=arguments["pattern"],
            root=await expand_home(path, sandbox),
            directory=f"{await scratch_directory(sandbox)}/hermes-search-{uuid.uuid4().hex}",
            globs=(arguments["file_glob"],) if "file_glob" in arguments else (),
            context=arguments.get("context", 0),
        )
        try:
            return await _search(sandbox, query, path, arguments.get("offset", 0), arguments.get("limit", 50))
        finally:
            with contextlib.suppress(OSError):
                await sandbox.remove(query.directory)


async def _search(sandbox: Sandbox, query: script.Query, path: str, offset: int, limit: int) -> ToolResult:
    command = script.search_command(query)
    result = await sandbox.exec(command, timeout=SEARCH_TIMEOUT, cwd=sandbox.workspace)
    if result.timed_out:
        return failure(f"The search took longer than {SEARCH_TIMEOUT} seconds. Search a smaller directory.")
    status, _, errors = result.stdout.decode(errors="replace").partition("\n")
    match status:
        case script.STATUS_DONE:
            raw = await sandbox.read_file(f"{query.directory}/found", length=script.RESULT_LIMIT)
        case script.STATUS_BAD_PATTERN:
            return failure(f"pattern is not a valid regular expression: {errors.strip() or query.pattern}")
        case script.STATUS_NO_PATH:
            return failure(f"Path not found: {path}", similar_files=await similar_files(sandbox, path))
        case script.STATUS_NO_MATCHER:
            return failure("Neither ripgrep nor grep is installed in the sandbox; search with the terminal's programs.")
        case _:
            return failure(f"The search could not run: {result.output.strip()[:500] or f'exit {result.exit_code}'}")
    fields = await asyncio.to_thread(_page, raw, query, offset, limit)
    unread = [line for line in errors.splitlines() if line]
    if unread and len(raw) < script.RESULT_LIMIT:
        fields["unreadable"] = [line[:200] for line in unread[:5]]
    return json_result(**fields)


def _page(raw: bytes, query: script.Query, offset: int, limit: int) -> dict[str, Any]:
    found: Sequence[Any]
    shown: list[Any]
    page = slice(offset, offset + limit)
    match query.mode:
        case "content":
            found = script.read_matches(raw, query.context)
            name, shown = "matches", [_match(item, query) for item in found[page]]
        case "count":
            found = script.read_counts(raw)
            name, shown = "counts", [{"path": path, "count": count} for path, count in found[page]]
        case _:
            found = script.read_paths(raw)
            name, shown = "files", list(found[page])
    capped = len(raw) >= script.RESULT_LIMIT
    truncated = capped or offset + limit < len(found)
    fields: dict[str, Any] = {name: shown, "total_count": len(found), "truncated": truncated}
    if capped:
        fields["note"] = "There are more results than the tool reads: total_count is a lower bound. Narrow the search."
    if offset + limit < len(found):
        fields["hint"] = f"Continue with offset={offset + limit}."
    return fields


def _match(match: script.Match, query: script.Query) -> dict[str, Any]:
    fields: dict[str, Any] = {"path": match.path, "line": match.line, "content": _cut(match.text)}
    if query.context:
        fields |= {"before": [_cut(line) for line in match.before], "after": [_cut(line) for line in match.after]}
    return fields


def _cut(text: str) -> str:
    return text if len(text) <= LINE_LIMIT else f"{text[:LINE_LIMIT]} [line cut, {len(text)} characters in total]"
