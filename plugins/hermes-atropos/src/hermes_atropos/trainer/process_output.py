"""The output of `process`: an append-only file of groups, and beside it what has been played.

Every item has one record in `<file>.progress`: what it came to, how many bytes of groups, and its ledger lines. It is
written when the item has ended, then its groups, then its ledger lines. After `kill -9` at most the last record is
without its groups: it and what there is of them are cut off, and its item is played again. Ledger lines that are
missing are written from the records.
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

from hermes_atropos.groups.item_play import ItemPlay
from hermes_atropos.trainer import transcript as display
from hermes_atropos.trainer.journal import candidates
from hermes_atropos.trainer.output_lock import OutputLock, lock_file
from hermes_atropos.trainer.process_settings import ANOTHER, compare
from hermes_core.contracts.errors import OutputError
from hermes_runner import JsonlFile


class ProcessOutput:
    """One file of groups, locked for this process. `done` holds the keys of the items that are not played again.

    `begin` comes before the first item; `settings` must agree with those of the groups that are there.
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
        """Continue in the file, or create it; a file that is not `process`'s is left alone, as path_1, path_2, ….

        Raises `OutputError` when it cannot be written, is in use, was begun with other settings, or is the ledger's.
        """
        mine = next(one for one in candidates(path) if progress_of(one).exists() or not one.exists())
        for one in (path, mine):
            if ledger is not None and ledger.resolve() in _files_of(one):
                hint = "name another file: --env.ledger_path FILE"
                raise OutputError(f"ledger_path {ledger} is a file of the groups in {one}", hint=hint)
        return cls(mine, settings)

    @property
    def output_id(self) -> str:
        """The output's own id, the same after a resume."""
        return str(self._beginning["output_id"])

    def begin(self, dataset: str | None) -> None:
        """Open the files; raises `OutputError` where the items of the dataset are other ones than at first."""
        settings = {**self._settings, "dataset_items": dataset}
        if self._records:
            compare(self.path, self._beginning["settings"], {"dataset_items": dataset})
        else:
            # Where nothing is recorded, the settings of an earlier start bind nobody.
            output_id = self._beginning.get("output_id") or secrets.token_hex(6)
            self._beginning = {"output_id": output_id, "settings": settings}
        with _error_context(self.path):
            if not self._records:
                os.truncate(progress_of(self.path), 0)
            progress = JsonlFile(progress_of(self.path))
            self._files = (progress, JsonlFile(self.path))
            if not self._records:
                progress.append(self._beginning)

    def play(self, key: str) -> ItemPlay:
        """Return an item about to be played."""
        return ItemPlay(key=key, output_id=self.output_id, interruptions=self._interruptions[key])

    def backlog(self) -> Iterator[tuple[str, Any]]:
        """Yield, with their keys, items that were to be played later and have not been."""
        for record in self._records:
            for key, item in child_items(str(record["item"]), record["backlog"]):
                if key not in self.done:
                    yield key, item

    def compare_item(self, key: str, digest: str) -> None:
        """Raise `OutputError` where an item that has been played is another one than then."""
        if digest and self._digests.get(key, digest) != digest:
            raise OutputError(
                f"{self.path} was begun with other items: item {key} is not the one that was played",
                hint=f"give items in the same order at each start (shuffle with a fixed seed), or {ANOTHER}",
            )

    async def commit(self, play: ItemPlay, *, is_done: bool) -> list[Mapping[str, Any]]:
        """Record what an item came to, and return its ledger's lines; an interrupted one is played again."""
        async with self._writing:
            return await asyncio.to_thread(self._commit, play, is_done=is_done)

    def missing_lines(self, ledger: Path) -> list[Mapping[str, Any]]:
        """Return the recorded lines that the ledger's file lacks; cuts off half a line at its end. Blocks."""
        if not self._records:
            return []
        with _error_context(ledger):
            JsonlFile(ledger).close()
        with ledger.open("rb") as file:
            there = {_rollout_id(line) for line in file}
        return [line for record in self._records for line in record["ledger"] if line["rollout_id"] not in there]

    def write_page(self) -> None:
        """Write the page for people beside the file. Blocks."""
        if self.written:
            display.write_page(self.path, self.path.with_suffix(".html"))

    def close(self) -> None:
        """Close the files and give the lock back; safe to call twice."""
        for file in self._files or ():
            file.close()
        self._lock.release()

    def _commit(self, play: ItemPlay, *, is_done: bool) -> list[Mapping[str, Any]]:
        assert self._files is not None, "begin() comes first"
        if self._is_broken:
            raise OutputError(f"{self.path} could not be written before", hint=ANOTHER)
        progress, data = self._files
        groups = b"".join(play.groups) if is_done else b""
        ledger = play.ledger_lines(is_done=is_done)
        record = {
            "item": play.key,
            "done": is_done,
            "groups": len(play.groups) if is_done else 0,
            "at": self._size(),
            "bytes": len(groups),
            "digest": play.digest,
            "backlog": play.backlog if is_done else [],
            "ledger": ledger,
        }
        # A record without its groups must stay the last one: the next start looks at no other.
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
    """Return where it is recorded what has been played into a file of groups."""
    return path.with_name(f"{path.name}.progress")


def _files_of(path: Path) -> set[Path]:
    return {one.resolve() for one in (path, progress_of(path), path.with_suffix(".html"), lock_file(path))}


def _recover(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read what was begun and what is recorded; cuts off what a kill has left half written."""
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
        raise OutputError(f"{progress} does not say what has been played: {said}", hint=ANOTHER) from error
    if not records:
        return beginning, []
    size = path.stat().st_size if path.exists() else 0
    at, length = starts[-1]
    if size < at:
        both = " and ".join(one.name for one in (path, progress) if one.exists())
        raise OutputError(
            f"{path} has {size} bytes, {progress.name} says at least {at}: groups have been taken out of it",
            hint=f"put them back, remove {both} to begin anew, or {ANOTHER}",
        )
    if size < at + length:
        os.truncate(path, at)
        os.truncate(progress, sum(map(len, lines[:-1])))
        records.pop()
    return beginning, records


@contextlib.contextmanager
def _error_context(path: Path) -> Iterator[None]:
    """Name the file and what to do, in the words of this command."""
    try:
        yield
    except (OutputError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        reason = cause.strerror
        hint = f"free space there and give the same command again: it continues; or {ANOTHER}"
        raise OutputError(f"{path} cannot be written: {reason}", hint=hint) from error


def _rollout_id(line: bytes) -> object:
    try:
        return json.loads(line)["rollout_id"]
    except (ValueError, KeyError, TypeError):
        return None  # whose line that is, is not for this command to say


def child_items(key: str, backlog: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Give the items that an item leaves to be played later their keys."""
    return ((f"{key}.{number}", item) for number, item in enumerate(backlog))
