"""The verifier `script`: a hidden script that judges."""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hermes_core.contracts.errors import NoVerdictError, VerifierError, WorkspaceError
from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.sandbox import ExecResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.commands.nonce_reports import lines_with, new_nonce
from hermes_verifiers.commands.private_directory import Room, open_room
from hermes_verifiers.options import ProtectedOptions, Seconds, failed_parts

_INTERPRETERS = {"bash": "bash --noprofile --norc", "python3": "python3 -I -B"}


class ScriptVerifier:
    """Runs a script that was not in the sandbox during the rollout, in the workspace and a clean environment.

    `reward` says how it reports the score: `exit_code` (0 is full), `report` (it reads a nonce, the first line of its
    standard input, and prints lines `NONCE NAME NUMBER` for parts, whose mean counts, or `NONCE NUMBER` for the whole),
    `file` (it writes a number, or a JSON object with the key `reward`, to the path in its first argument; the path
    cannot be guessed). With `reward_files`, fixed paths are read instead; existing files there are removed beforehand.
    """

    class Options(ProtectedOptions):
        """Either `script` (its text) or `command`; `files` are put beside the script, `upload` copies local folders.

        `on_timeout` and `on_silence` set the score if the script hangs or reports none. A script that the rollout
        prevented from running, or that was killed, scores the lowest in any case.
        """

        script: str | None = None
        command: str | None = None
        interpreter: Literal["bash", "python3"] = "bash"
        files: dict[str, str] = Field(default_factory=dict)
        upload: dict[str, str] = Field(default_factory=dict)
        reward: Literal["exit_code", "report", "file"] = "exit_code"
        reward_files: list[str] = Field(default_factory=list)
        timeout: Seconds = 120.0
        on_timeout: Literal["zero", "error"] = "zero"
        on_silence: Literal["zero", "error"] = "error"
        env: dict[str, str] = Field(default_factory=dict)
        inherit_env: bool = False
        cwd: str | None = None

        @model_validator(mode="after")
        def _fits_together(self) -> Self:
            if (self.script is None) == (self.command is None):
                raise ValueError("give either 'script' or 'command'")
            if self.reward_files and self.reward != "file":
                raise ValueError("'reward_files' requires reward 'file'")
            if any(not posixpath.isabs(path) for path in (*self.upload, *self.reward_files)):
                raise ValueError("expected absolute paths in the sandbox in 'upload' and 'reward_files'")
            return self

    def __init__(self, options: Options) -> None:
        self._options = options

    def protected_paths(self) -> list[str]:
        """Name the paths that the model must not change."""
        return self._options.protected

    def inputs(self) -> list[str]:
        """Name the local folders that are copied into the sandbox."""
        return list(self._options.upload.values())

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Run the script and read its score."""
        del result
        await self._clear(context)
        for remote, local in self._options.upload.items():
            await _upload(context, local, remote)
        nonce = new_nonce()
        async with open_room(context.sandbox) as room:
            reward_files = self._options.reward_files or [room.secret_path()]
            ended = await self._run(room, nonce, reward_files[0])
            if ended.timed_out:
                return self._timeout_score()
            if self._options.reward == "file":
                return await self._from_files(room, reward_files, ended)
            if self._options.reward == "report":
                return await self._from_report(room, lines_with(nonce, ended.stdout), ended)
        return Score(value=1.0 if ended.exit_code == 0 else 0.0, detail=_ending(ended))

    async def _clear(self, context: Any) -> None:
        """Remove files that the model may have put at the paths of tests or rewards."""
        for path in (*self._options.upload, *{posixpath.dirname(path): None for path in self._options.reward_files}):
            quoted = shlex.quote(path)
            command = f"command -p rm -rf -- {quoted} && command -p mkdir -p -- {quoted}"
            # A user can make its own unwritable files writable again.
            done = await context.sandbox.exec(f"command -p chmod -R u+rwX -- {quoted} 2>/dev/null; {command}", cwd="/")
            if done.exit_code != 0:
                raise WorkspaceError(f"{path} cannot be emptied: {done.output.strip()[-300:]}")

    async def _run(self, room: Room, nonce: str, reward_file: str) -> ExecResult:
        for name, text in self._options.files.items():
            await room.put(f"script/{name}", text)
        command = self._options.command
        if self._options.script is not None:
            program = await room.put("script/judge", self._options.script)
            command = f"exec {_INTERPRETERS[self._options.interpreter]} {shlex.quote(program)}"
            if self._options.reward == "file":
                command += f" {shlex.quote(reward_file)}"
        return await room.run(
            command or "",
            timeout=self._options.timeout,
            cwd=self._options.cwd,
            stdin=f"{nonce}\n",
            env=self._options.env,
            inherit_env=self._options.inherit_env,
        )

    def _timeout_score(self) -> Score:
        text = f"the judging script took more than {self._options.timeout:g} s"
        if self._options.on_timeout == "error":
            raise VerifierError(text, hint="raise its timeout, or set on_timeout to 'zero'")
        return Score(value=0.0, detail=text)

    async def _from_files(self, room: Room, paths: list[str], ended: ExecResult) -> Score:
        for path in paths:
            try:
                data = await room.sandbox.read_file(path, length=65536)
            except OSError:
                continue
            return _from_text(data.decode("utf-8", "replace").strip(), path)
        where = " or ".join(self._options.reward_files or ["its first argument"])
        return await self._silent(room, f"wrote no reward to {where}", ended)

    async def _from_report(self, room: Room, lines: list[str], ended: ExecResult) -> Score:
        parts: dict[str, float] = {}
        for line in lines:
            name, _, number = line.strip().rpartition(" ")
            parts[name.strip()] = _number(number, f"report line {line!r}")
        total = parts.pop("", None)
        if total is None and not parts:
            return await self._silent(room, "reported nothing", ended)
        value = sum(parts.values()) / len(parts) if total is None else total
        return Score(value=value, parts=parts, detail=failed_parts(parts))

    async def _silent(self, room: Room, what: str, ended: ExecResult) -> Score:
        text = f"the judging script {what}; {_ending(ended)}"
        if self._options.on_silence == "zero":
            return Score(value=0.0, detail=text)
        # Not started (126, 127), killed (128 and more), or run by a broken interpreter: the script could not judge. Any
        # other script could; a second attempt shows whether its silence is its own fault.
        if ended.exit_code >= 126 or not await self._has_interpreter(room):
            raise WorkspaceError(text)
        raise NoVerdictError(text, hint="set on_silence to 'zero' if the model's work can cause this")

    async def _has_interpreter(self, room: Room) -> bool:
        interpreter = "bash" if self._options.script is None else self._options.interpreter
        word = new_nonce()
        say = {"bash": f"echo {word}", "python3": f"print('{word}')"}[interpreter]
        env = self._options.env
        command = f"exec {_INTERPRETERS[interpreter]} -c {shlex.quote(say)}"
        said = await room.run(command, timeout=60, env=env, inherit_env=self._options.inherit_env)
        return word in said.output


async def _upload(context: Any, local: str, remote: str) -> None:
    answers = await context.upload_dir(local, remote)
    failed = [answer for answer in answers if answer["exit_code"] != 0]
    if failed:
        raise WorkspaceError(f"{local} cannot be copied to {remote}: {failed[0]['output']}")


def _from_text(text: str, path: str) -> Score:
    """Read a bare number, or Harbor's JSON object of named rewards."""
    if not text.startswith("{"):
        return Score(value=_number(text, path), detail=f"read from {path}")
    try:
        named = {str(name): _number(value, f"{path}, {name}") for name, value in json.loads(text).items()}
    except ValueError as error:
        raise NoVerdictError(f"{path} is not valid JSON: {error}") from error
    if "reward" not in named and len(named) != 1:
        raise NoVerdictError(f"{path}: expected a reward called 'reward', got {', '.join(named) or 'none'}")
    value = named.get("reward", next(iter(named.values())))
    return Score(value=value, parts=named, detail=f"read from {path}")


def _number(text: object, where: str) -> float:
    try:
        number = float(text)  # type: ignore[arg-type]  # anything else raises, as intended
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise NoVerdictError(f"{where}: expected a finite number, got {text!r}")
    return number


def _ending(ended: ExecResult) -> str:
    tail = ended.output.strip()[-300:]
    return f"exit code {ended.exit_code}" + (f": {tail}" if tail else "")
