"""Writes `report.html`, in one pass over the rollouts with one of them in memory."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import IO, Any, Final

from hermes_core.cli import one_line
from hermes_core.contracts.errors import OutputError
from hermes_runner.file_writing import replace_file
from hermes_runner.output import without_samples
from hermes_runner.report.view import detail_view, lengths, row_view, shorten

BUDGET: Final = 64 * 1024 * 1024
"""Size in bytes above which long texts are cut, because browsers open larger pages slowly or not at all."""

_LIMITS: Final = (16_000, 4_000, 1_000, 200)
_MAX_UNREADABLE: Final = 20
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SPLIT: Final = "\0rollouts\0"


def write_report(
    path: Path | str, summary: Mapping[str, Any], lines: Iterable[str | bytes], *, budget: int = BUDGET
) -> None:
    """Write the page; `lines` are those of `rollouts.jsonl`, in order. If it fails, an existing file stays as it is.

    A line that is not a rollout is left out, and the page says so. It blocks: on an event loop, call it in a thread.
    """
    target = Path(path)
    try:
        with replace_file(target) as out, tempfile.TemporaryFile(dir=target.parent) as spool:
            body = _Body(spool, budget, target.parent)
            for number, line in enumerate(lines, start=1):
                body.add(line, number)
            before, after = _page(summary, body.facts())
            out.write(before)
            body.copy_to(out)
            out.write(after)
    except OSError as error:
        raise OutputError(
            f"The report {target} could not be written: {error}.",
            hint=f"make room or choose another folder, then: hermes-core report {target.parent}",
        ) from error


def embed(value: object) -> bytes:
    """Serialise to JSON that is safe inside a script element and valid UTF-8, whatever the strings contain."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


class _Body:
    """The rollouts' data in a temporary file, two lines each: the table's row and the conversation."""

    def __init__(self, spool: IO[bytes], budget: int, directory: Path) -> None:
        self._spool = spool
        self._directory = directory
        self._budget = budget
        self._size = 0
        self._limit: int | None = None
        self._savings = dict.fromkeys(_LIMITS, 0)
        self._rollouts = 0
        self._unreadable: list[int] = []
        self._unreadable_count = 0

    def add(self, line: str | bytes, number: int) -> None:
        if not line.strip():
            return
        try:
            outcome = json.loads(without_samples(line))
            row, detail = embed(row_view(outcome, number)), detail_view(outcome)
            texts = [length for length in lengths(detail) if length > _LIMITS[-1]]
            data = embed(detail if self._limit is None else shorten(detail, self._limit))
        except (ValueError, RecursionError, AttributeError):
            # Not JSON, not UTF-8, nested too deeply, or not an object.
            self._unreadable_count += 1
            self._unreadable.extend([number] if len(self._unreadable) < _MAX_UNREADABLE else [])
            return
        self._rollouts += 1
        for limit in _LIMITS:
            self._savings[limit] += sum(length - limit for length in texts if length > limit)
        self._write(row, data)
        while self._size > self._budget and (tighter := self._tighter()) is not None:
            self._shorten_all(tighter)

    def _tighter(self) -> int | None:
        """Choose the next lower limit that is about enough, else the lowest one; None if none is left."""
        saved = 0 if self._limit is None else self._savings[self._limit]
        left = [limit for limit in _LIMITS if self._limit is None or limit < self._limit]
        enough = (limit for limit in left if self._size - (self._savings[limit] - saved) <= self._budget)
        return next(enough, left[-1] if left else None)

    def facts(self) -> dict[str, Any]:
        return {
            "rollouts": self._rollouts,
            "limit": self._limit,
            "unreadable": self._unreadable_count,
            "unreadable_lines": self._unreadable,
        }

    def copy_to(self, out: IO[bytes]) -> None:
        for row, data in self._pairs(self._spool):
            out.write(b'<script type="application/json" class="row">' + row + b"</script>\n")
            out.write(b'<script type="application/json" class="rollout">' + data + b"</script>\n")

    def _write(self, row: bytes, data: bytes) -> None:
        self._size += self._spool.write(row + b"\n" + data + b"\n")

    def _shorten_all(self, limit: int) -> None:
        """Shorten the texts written so far, through a second file, because they may not fit into memory."""
        self._limit, self._size = limit, 0
        with tempfile.TemporaryFile(dir=self._directory) as old:
            self._spool.seek(0)
            while chunk := self._spool.read(1 << 20):
                old.write(chunk)
            self._spool.seek(0)
            self._spool.truncate()
            for row, data in self._pairs(old):
                self._write(row, embed(shorten(json.loads(data), limit)))

    @staticmethod
    def _pairs(spool: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
        spool.seek(0)
        while row := spool.readline():
            yield row.rstrip(b"\n"), spool.readline().rstrip(b"\n")


def _page(summary: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the page before and after the rollouts; only the page's own script and style may run, by their hashes."""
    assets = files(__package__).joinpath("assets")
    style = assets.joinpath("report.css").read_text(encoding="utf-8")
    script = assets.joinpath("report.js").read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    page = Template(assets.joinpath("report.html").read_text(encoding="utf-8")).substitute(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        title=html.escape(_title(summary)),
        style=style,
        script=script,
        summary=embed(summary).decode(),
        facts=embed(facts).decode(),
        rollouts=_SPLIT,
    )
    before, _, after = page.partition(_SPLIT)
    return before.encode(), after.encode()


def _title(summary: Mapping[str, Any]) -> str:
    run = summary.get("run") or {}
    run = {**(run.get("config") or {}), **run}
    names = [one_line(run[key], 100) for key in ("name", "tasks", "model_name", "model") if run.get(key)]
    return " · ".join(["Rollouts", *names[:2]])


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _finite(value: Any) -> Any:
    """Replace numbers that JSON cannot express, not-a-number and infinities, with text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
