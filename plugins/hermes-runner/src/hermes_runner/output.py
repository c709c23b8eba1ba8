"""The output folder of a run: append-only JSON lines that survive `kill -9`, from which a resumed run continues.

If a kill leaves half a line, its rollout is run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from hermes_core.contracts.errors import OutputError
from hermes_core.redaction import comparable_values
from hermes_runner.file_writing import JsonlFile, replace_file, unwritable_error, write_atomically

ROLLOUTS = "rollouts.jsonl"
ATTEMPTS = "attempts.jsonl"
MANIFEST = "run.json"
SUMMARY = "summary.json"
REPORT = "report.html"
_ID = re.compile(rb'^\{"rollout_id":"([\w-]+)"')


class FolderTakenError(OutputError):
    """Another run has locked the folder, or removed it because it was empty."""


class OutputFolder:
    """The folder of one run, locked by this process. `done` contains the ids of the recorded rollouts."""

    def __init__(self, path: Path, lock: int, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self.rollouts = JsonlFile(path / ROLLOUTS)
        self.attempts = JsonlFile(path / ATTEMPTS)
        self.done = {self._id(number, line) for number, line in enumerate(self.rollouts.lines(), 1)}

    @classmethod
    def open(
        cls, path: Path, fingerprint: Mapping[str, Any], *, facts: Mapping[str, Any], retry_failed: bool = False
    ) -> Self:
        """Create the folder or continue in it.

        `fingerprint` contains the settings that must be equal for the recorded rollouts to belong to this run; `facts`
        are written beside it. With `retry_failed`, dropped rollouts move to `attempts.jsonl` and count as not run. A
        run may grow: a larger `group_size` runs the missing rollouts. Raises `OutputError` if the folder is not
        writable, is in use, or contains a different run.
        """
        try:
            # Another run may move a link such as `runs/latest` in the meantime.
            path = path.resolve() if path.is_symlink() else path
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable_error(path, error) from error
        try:
            _take(lock, path)
            manifest = _manifest(path, fingerprint, facts)
            if retry_failed:
                _forget_failed(path)
            return cls(path, lock, manifest)
        except BaseException:
            os.close(lock)
            raise

    def _id(self, number: int, line: bytes) -> str:
        try:
            return rollout_id(line)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(number, line) from error

    def _unreadable(self, number: int, line: bytes) -> OutputError:
        return OutputError(
            f"{self.rollouts.path}, line {number} is no rollout: {line[:80]!r}",
            hint=f"take line {number} out of the file to continue the run, or name another folder with --out",
        )

    @property
    def run_id(self) -> str:
        """The id of the run, which stays the same after a resume."""
        return str(self.manifest["run_id"])

    def outcomes(self) -> Iterator[dict[str, Any]]:
        """Read the recorded rollouts, without their samples."""
        for number, line in enumerate(self.rollouts.lines(), 1):
            try:
                yield json.loads(without_samples(line))
            except ValueError as error:
                raise self._unreadable(number, line) from error

    def begin(self) -> None:
        """Write the settings, whose `group_size` may have grown, and remove an earlier summary and report."""
        write_atomically(self.path / MANIFEST, _as_json(self.manifest))
        _remove_results(self.path)

    def write_text(self, name: str, text: str) -> Path:
        """Replace a file of the folder atomically."""
        return write_atomically(self.path / name, text)

    def close(self) -> None:
        """Close the files and release the lock; safe to call twice."""
        self.rollouts.close()
        self.attempts.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_results(folder: Path) -> None:
    """Remove the summary and the report, because the rollouts they show are no longer all or the same."""
    for name in (SUMMARY, REPORT):
        with contextlib.suppress(OSError):  # there is none, or it cannot be replaced either, which the run then says
            (folder / name).unlink()


def _forget_failed(folder: Path) -> None:
    source = folder / ROLLOUTS
    if not source.exists():
        return
    attempts = JsonlFile(folder / ATTEMPTS)
    try:
        # An earlier call that was killed may have moved some of them already.
        known = {hashlib.sha256(line).digest() for line in attempts.lines()}
        with source.open("rb") as lines, replace_file(source) as kept:
            for line in lines:
                if not _is_forgotten(line):
                    kept.write(line)
                    continue
                _remove_results(folder)
                if hashlib.sha256(line).digest() not in known:
                    attempts.append_line(line)
    except OSError as error:
        raise unwritable_error(source, error) from error
    finally:
        attempts.close()


def _is_forgotten(line: bytes) -> bool:
    return line.endswith(b"\n") and _is_worthless(line)


def _is_worthless(line: bytes) -> bool:
    return bool(json.loads(without_samples(line)).get("disposition") == "drop")


def without_samples(line: str | bytes) -> str | bytes:
    """Return a line of `rollouts.jsonl` without the samples, a trainer's ids and logprobs: often most of the line.

    The two marks cannot be inside a JSON string, where each quote has a backslash before it. Objects further inside may
    have the same keys, so the last occurrence counts: it is the rollout's own.
    """
    if isinstance(line, str):
        return line
    start, end = line.rfind(b',"samples":['), line.rfind(b'],"exactness":')
    return line[:start] + line[end + 1 :] if 0 <= start < end else line


def rollout_id(line: bytes) -> str:
    """Return the id in a line of `rollouts.jsonl`, without parsing the whole line if possible."""
    match = _ID.match(line)
    return match[1].decode() if match else str(json.loads(line)["rollout_id"])


def _manifest(path: Path, fingerprint: Mapping[str, Any], facts: Mapping[str, Any]) -> Mapping[str, Any]:
    file = path / MANIFEST
    if holds_nothing(path):
        # An earlier start may have failed before it recorded anything; its settings no longer matter.
        made = {"run_id": secrets.token_hex(6), "fingerprint": fingerprint, **facts}
        write_atomically(file, _as_json(made))
        return made
    found = _read_manifest(file)
    different = differences(found["fingerprint"], fingerprint)
    has_grown = _is_larger(fingerprint.get("group_size"), found["fingerprint"].get("group_size"))
    if has_grown:
        different.discard("group_size")
    if different:
        names = ["what the tasks say" if key == "tasks_sha256" else key for key in sorted(different)]
        may_grow = "; group_size may grow" if "group_size" in different else ""
        raise OutputError(
            f"{path} holds a run that differs in {', '.join(names)}",
            hint=f"name another folder with --out, or give the same values to continue it{may_grow}",
        )
    return {**found, "fingerprint": fingerprint} if has_grown else found


def _as_json(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def _is_larger(new: object, old: object) -> bool:
    return isinstance(new, int) and isinstance(old, int) and new > old


def holds_nothing(path: Path) -> bool:
    """Tell whether no rollout and no attempt is recorded in a folder."""
    return all(not (path / name).exists() or not (path / name).stat().st_size for name in (ROLLOUTS, ATTEMPTS))


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        fingerprint, run_id = dict(found["fingerprint"]), str(found["run_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{file} does not say which run {file.parent} holds: {type(error).__name__}: {error}",
            hint="name another folder with --out",
        ) from error
    return {**found, "fingerprint": fingerprint, "run_id": run_id}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Return the names of the settings in which two runs differ, without comparing secrets."""
    # Both sides: the folder may be from a time when a setting was not yet known to be secret.
    old, new = comparable_values(old), comparable_values(json.loads(json.dumps(new)))
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        hint = "wait for it to end, or name another folder with --out"
        raise FolderTakenError(f"another run is writing to {path}", hint=hint) from error
    if os.fstat(lock).st_nlink == 0:
        raise FolderTakenError(f"another run has removed {path}, which was empty", hint="give the same command again")
