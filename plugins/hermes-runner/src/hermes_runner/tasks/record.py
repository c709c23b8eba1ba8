"""The JSON form of a task, and its conversion to a `Task`."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Cheat, Precautions, Step, Task, TaskFile
from hermes_core.redaction import quote_value, validation_message
from hermes_core.rollout import RolloutLimits
from hermes_core.specs import Access, Ref
from hermes_runner.tasks.explain import unknown_key

_Text = Annotated[str, Field(min_length=1)]
_SANDBOX_KEYS: Final = tuple(f.name for f in dataclasses.fields(SandboxSpec) if f.name != "rollout_id")
_LIMIT_KEYS: Final = tuple(f.name for f in dataclasses.fields(RolloutLimits))


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FileRecord(_Record):
    """A file of the sandbox: its text, its bytes, or a file below the task file's folder; `mode` in octal digits."""

    text: str | None = None
    base64: str | None = None
    source: _Text | None = None
    mode: str = Field(default="0644", pattern=r"^0?[0-7]{3}$")

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        if (count := sum(value is not None for value in (self.text, self.base64, self.source))) != 1:
            raise ValueError(f"expected exactly one of 'text', 'base64' and 'source', got {count}")
        return self

    def data(self, folder: Path) -> bytes:
        """Return the content; raises ValueError if it cannot be read."""
        if self.text is not None:
            return self.text.encode()
        if self.base64 is not None:
            try:
                return base64.b64decode(self.base64, validate=True)
            except binascii.Error as error:
                raise ValueError(f"'base64' is not valid base64: {error}") from error
        return _beside(folder, self.source or "")


class StepRecord(_Record):
    """One tool call."""

    tool: _Text
    arguments: dict[str, Any] = Field(default_factory=dict)


class VerifierRecord(_Record):
    """A verifier with its options, and the precautions that the task demands."""

    name: _Text
    options: dict[str, Any] = Field(default_factory=dict)
    access: Access | None = None
    artifacts: list[str] | None = None
    protected: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _paths_can_be_used(self) -> Self:
        self.precautions()
        return self

    def precautions(self) -> Precautions:
        """Return the precautions that the task demands; raises ValueError for an invalid path."""
        artifacts = None if self.artifacts is None else tuple(self.artifacts)
        return Precautions(access=self.access, artifacts=artifacts, protected=tuple(self.protected))


class CheatRecord(_Record):
    """A way to look successful without solving the task."""

    name: _Text
    kind: Literal["wrong_output", "tampering", "hard_coded", "other"] = "other"
    steps: list[_Text | StepRecord] = Field(default_factory=list)
    answer: str | None = None


class TaskRecord(_Record):
    """One task. A step that is a string is a command for the tool `terminal`."""

    id: _Text
    prompt: _Text | None = None
    messages: list[dict[str, Any]] | None = None
    files: dict[str, str | FileRecord] = Field(default_factory=dict)
    setup: list[_Text] = Field(default_factory=list)
    verifier: _Text | VerifierRecord | None = None
    solution: list[_Text | StepRecord] | None = None
    answer: str | None = None
    cheats: list[CheatRecord] = Field(default_factory=list)
    enabled_toolsets: list[_Text] | None = None
    sandbox: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    split: _Text = "train"
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("id")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable() or value != value.strip():
            raise ValueError(f"expected printable text without blanks around it, got {value!r}")
        return value

    @field_validator("files")
    @classmethod
    def _paths_stay_inside(cls, files: dict[str, Any]) -> dict[str, Any]:
        for path in files:
            if not path or "\0" in path or ".." in path.split("/") or posixpath.normpath(path) in {".", "/"}:
                raise ValueError(f"expected an absolute path or one below the workspace, without '..', got {path!r}")
        return files

    @field_validator("messages")
    @classmethod
    def _are_messages(cls, messages: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for index, message in enumerate(messages or ()):
            if message.get("role") not in {"system", "user", "assistant", "tool"} or "content" not in message:
                raise ValueError(f"message {index} needs 'role' (system, user, assistant, tool) and 'content'")
        return messages

    @field_validator("sandbox")
    @classmethod
    def _is_a_sandbox(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return _fields_of(SandboxSpec, _SANDBOX_KEYS, fields)

    @field_validator("limits")
    @classmethod
    def _are_limits(cls, fields: dict[str, Any]) -> dict[str, Any]:
        limits = _fields_of(RolloutLimits, _LIMIT_KEYS, fields)
        for key, value in limits.items():
            if value is not None and not value > 0:
                raise ValueError(f"{key}: expected a number above 0, got {value}")
        return limits

    @model_validator(mode="after")
    def _asks_once(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            found = "both" if self.messages else "neither"
            raise ValueError(f"expected exactly one of 'prompt' and a non-empty 'messages', got {found}")
        names = [cheat.name for cheat in self.cheats]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two cheats are called {repeated[0]!r}")
        return self

    def to_task(self, *, source: str, folder: Path) -> Task:
        """Build the task; `folder` contains the `source` files. Raises ValueError for content that cannot be read."""
        messages = self.messages or [{"role": "user", "content": self.prompt}]
        return Task(
            id=self.id,
            messages=tuple(messages),
            files=tuple(_file(path, content, folder) for path, content in self.files.items()),
            setup=tuple(self.setup),
            verifier=_verifier(self.verifier),
            precautions=self.verifier.precautions() if isinstance(self.verifier, VerifierRecord) else Precautions(),
            solution=None if self.solution is None else _steps(self.solution),
            answer=self.answer,
            cheats=tuple(_cheat(cheat) for cheat in self.cheats),
            enabled_toolsets=None if self.enabled_toolsets is None else tuple(self.enabled_toolsets),
            sandbox=self.sandbox,
            limits=self.limits,
            split=self.split,
            metadata=self.metadata,
            source=source,
        )


KNOWN_KEYS: Final[dict[str, Sequence[str]]] = {
    "": tuple(TaskRecord.model_fields),
    "files": tuple(FileRecord.model_fields),
    "verifier": tuple(VerifierRecord.model_fields),
    "solution": tuple(StepRecord.model_fields),
    "cheats": tuple(CheatRecord.model_fields),
    "steps": tuple(StepRecord.model_fields),
}


def _fields_of(owner: type, known: Sequence[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Validate fields of a dataclass and return them, converted to its types."""
    for key in fields:
        if key not in known:
            raise ValueError(unknown_key(key, known))
    try:
        whole: Any = TypeAdapter(owner).validate_python(dict(fields))
    except ValueError as error:  # a ValidationError; its first problem is enough here
        first = getattr(error, "errors", list)()[0]
        message = validation_message(first, quote_value(first["input"], first["loc"]))
        raise ValueError(f"{'.'.join(map(str, first['loc'][:2]))}: {message}") from None
    return {key: getattr(whole, key) for key in fields}


def _file(path: str, content: str | FileRecord, folder: Path) -> TaskFile:
    record = FileRecord(text=content) if isinstance(content, str) else content
    try:
        return TaskFile(path=path, data=record.data(folder), mode=int(record.mode, 8))
    except ValueError as error:
        raise ValueError(f"file {path!r}: {error}") from error


def _beside(folder: Path, name: str) -> bytes:
    """Read a file below the task file's folder, and nothing outside it."""
    root = folder.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"source {name!r} leads out of {folder}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"source {name!r} cannot be read: {error.strerror}") from error


def _verifier(record: str | VerifierRecord | None) -> Ref | None:
    if record is None:
        return None
    if isinstance(record, str):
        return Ref(kind="verifier", name=record)
    return Ref(kind="verifier", name=record.name, options=record.options)


def _cheat(record: CheatRecord) -> Cheat:
    return Cheat(name=record.name, steps=_steps(record.steps), kind=record.kind, answer=record.answer)


def _steps(records: Sequence[str | StepRecord]) -> tuple[Step, ...]:
    return tuple(
        Step(tool="terminal", arguments={"command": record})
        if isinstance(record, str)
        else Step(tool=record.tool, arguments=record.arguments)
        for record in records
    )
