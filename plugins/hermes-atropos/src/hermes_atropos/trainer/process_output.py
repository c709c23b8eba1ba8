"""The output of `process`: an append-only file of groups, and beside it a record of finished items.

Every item has one record in `<file>.progress`: its result, the number of bytes of its groups, and its ledger lines.
When the item has ended, the record is written first, then its groups, then its ledger lines. After `kill -9`, at most
the last record lacks its groups: the record and partial groups are removed, and the item is repeated. Missing ledger
lines are restored from the records.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from hermes_atropos.groups.item_run import ItemRun
from hermes_atropos.trainer import transcript as display
from hermes_atropos.trainer.journal import candidates
from hermes_atropos.trainer.output_lock import OutputLock, lock_file
from hermes_atropos.trainer.process_settings import ANOTHER, compare
from hermes_core.contracts.errors import OutputError
from hermes_runner import JsonlFile


class ProcessOutput:
    """One file of groups, locked for this process. `done` has the keys of finished items.

    Call `begin` before the first item; `settings` must match those of the existing groups.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._settings = settings
        self._writing = asyncio.Lock()
        self._files: tuple[JsonlFile, JsonlFile] | None = None
        self._lock = OutputLock(path)
        try:
            with _error_context(path):
                self._beginning, self._records = _recover(path)
            if self._records:
                compare(path, self._beginning["settings"], settings)
        except BaseException:
            self.close()
            raise
        self._is_broken = False
        self._interruptions = Counter(record["item"] for record in self._records if not record["done"])
        self.done = {str(record["item"]) for record in self._records if record["done"]}
        # A record of an earlier version has no digest.
        self._digests = {str(one["item"]): one["digest"] for one in self._records if one["done"] and one.get("digest")}
        self.written = sum(int(record["groups"]) for record in self._records)

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, Any], *, ledger: Path | None = None) -> Self:
        """Continue the file or create it; if `path` is not a file of `process`, use path_1, path_2, ….

        Raises `OutputError` if it cannot be written, is in use, was started with other settings, or is the ledger's
        file.
        """
        mine = next(one for one in candidates(path) if progress_of(one).exists() or not one.exists())
        for one in (path, mine):
            if ledger is not None and ledger.resolve() in _files_of(one):
                hint = "give another file: --env.ledger_path FILE"
                raise OutputError(
                    f"expected a separate file as ledger_path, got {ledger}, which belongs to the groups in {one}",
                    hint=hint,
                )
        return cls(mine, settings)

    @property
    def output_id(self) -> str:
        """The id of the output, unchanged after a resume."""
        return str(self._beginning["output_id"])

    def begin(self, dataset: str | None) -> None:
        """Open the files; raise `OutputError` if the dataset's items differ from the first start."""
        settings = {**self._settings, "dataset_items": dataset}
        if self._records:
            compare(self.path, self._beginning["settings"], {"dataset_items": dataset})
        else:
            # Without any record, the settings of an earlier start do not matter.
            output_id = self._beginning.get("output_id") or secrets.token_hex(6)
            self._beginning = {"output_id": output_id, "settings": settings}
        with _error_context(self.path):
            if not self._records:
                os.truncate(progress_of(self.path), 0)
            progress = JsonlFile(progress_of(self.path))
            self._files = (progress, JsonlFile(self.path))
            if not self._records:
                progress.append(self._beginning)

    def item_run(self, key: str) -> ItemRun:
        """Return the state of an item that starts now."""
        return ItemRun(key=key, output_id=self.output_id, interruptions=self._interruptions[key])

    def backlog(self) -> Iterator[tuple[str, Any]]:
        """Yield the postponed items that have not run yet, with their keys."""
        for record in self._records:
            for key, item in child_items(str(record["item"]), record["backlog"]):
                if key not in self.done:
                    yield key, item

    def compare_item(self, key: str, digest: str) -> None:
        """Raise `OutputError` if a finished item has changed since."""
        if digest and self._digests.get(key, digest) != digest:
            raise OutputError(
                f"{self.path} was started with other items: item {key} has changed",
                hint=f"return items in the same order at each start (shuffle with a fixed seed), or {ANOTHER}",
            )

    async def commit(self, item_run: ItemRun, *, is_done: bool) -> list[Mapping[str, Any]]:
        """Record an item's result and return its ledger lines; an interrupted item is repeated."""
        async with self._writing:
            return await asyncio.to_thread(self._commit, item_run, is_done=is_done)

    def missing_lines(self, ledger: Path) -> list[Mapping[str, Any]]:
        """Return recorded lines that are missing in the ledger's file, and truncate a partial last line. Blocks."""
        if not self._records:
            return []
        with _error_context(ledger):
            JsonlFile(ledger).close()
        with ledger.open("rb") as file:
            there = {_rollout_id(line) for line in file}
        return [line for record in self._records for line in record["ledger"] if line["rollout_id"] not in there]

    def write_page(self) -> None:
        """Write the readable page beside the file. Blocks."""
        if self.written:
            display.write_page(self.path, self.path.with_suffix(".html"))

    def close(self) -> None:
        """Close the files and release the lock; safe to call twice."""
        for file in self._files or ():
            file.close()
        self._lock.release()

    def _commit(self, item_run: ItemRun, *, is_done: bool) -> list[Mapping[str, Any]]:
        assert self._files is not None, "begin() comes first"
        if self._is_broken:
            raise OutputError(f"an earlier write to {self.path} failed", hint=ANOTHER)
        progress, data = self._files
        groups = b"".join(item_run.groups) if is_done else b""
        ledger = item_run.ledger_lines(is_done=is_done)
        record = {
            "item": item_run.key,
            "done": is_done,
            "groups": len(item_run.groups) if is_done else 0,
            "at": self._size(),
            "bytes": len(groups),
            "digest": item_run.digest,
            "backlog": item_run.backlog if is_done else [],
            "ledger": ledger,
        }
        # A record without its groups must stay the last one, because the next start only repairs the last.
        self._is_broken = True
        with _error_context(self.path):
            progress.append(record)
            data.append_line(groups)
        self._is_broken = False
        self._count(record)
        return ledger

    def _size(self) -> int:
        with _error_context(self.path):
            return self.path.stat().st_size

    def _count(self, record: dict[str, Any]) -> None:
        self.written += record["groups"]
        if record["done"]:
            self.done.add(record["item"])
        else:
            self._interruptions[record["item"]] += 1


def progress_of(path: Path) -> Path:
    """Return the progress file of a file of groups."""
    return path.with_name(f"{path.name}.progress")


def _files_of(path: Path) -> set[Path]:
    return {one.resolve() for one in (path, progress_of(path), path.with_suffix(".html"), lock_file(path))}


def _recover(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the header and the records; truncate data that a kill left half written."""
    progress = progress_of(path)
    progress.touch()
    content = progress.read_bytes()
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    if not lines:
        return {}, []
    try:
        beginning, *records = map(json.loads, lines)
        starts = [(int(record["at"]), int(record["bytes"])) for record in records]
        _ = (beginning["output_id"], beginning["settings"])
    except (ValueError, KeyError, TypeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise OutputError(f"{progress} is not a valid progress file: {said}", hint=ANOTHER) from error
    if not records:
        return beginning, []
    size = path.stat().st_size if path.exists() else 0
    at, length = starts[-1]
    if size < at:
        both = " and ".join(one.name for one in (path, progress) if one.exists())
        raise OutputError(
            f"expected at least {at} bytes in {path} from {progress.name}, got {size}: groups were removed from it",
            hint=f"restore them, remove {both} to start again, or {ANOTHER}",
        )
    if size < at + length:
        os.truncate(path, at)
        os.truncate(progress, sum(map(len, lines[:-1])))
        records.pop()
    return beginning, records


@contextlib.contextmanager
def _error_context(path: Path) -> Iterator[None]:
    """Convert errors to this command's errors, with the file and a hint."""
    try:
        yield
    except (OutputError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        reason = cause.strerror
        hint = f"free space there and rerun the same command to continue, or {ANOTHER}"
        raise OutputError(f"{path} cannot be written: {reason}", hint=hint) from error


def _rollout_id(line: bytes) -> object:
    try:
        return json.loads(line)["rollout_id"]
    except (ValueError, KeyError, TypeError):
        return None  # the line may belong to another command


def child_items(key: str, backlog: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield an item's postponed items with their keys."""
    return ((f"{key}.{number}", item) for number, item in enumerate(backlog))
