"""The verifier `pytest`: writes hidden tests into a private directory after the rollout and runs them."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from hermes_core.contracts.errors import VerifierError, WorkspaceError
from hermes_core.contracts.rollout import AgentResult
from hermes_core.contracts.sandbox import ExecResult
from hermes_core.contracts.verifier import Score
from hermes_verifiers.commands.nonce_reports import new_nonce, objects_with
from hermes_verifiers.commands.private_directory import Room, open_room
from hermes_verifiers.options import ProtectedOptions, Seconds, Weight, failed_parts, weighted_mean

_PROGRAM: Final = (
    "__init__.py",
    "hidden_tests/__init__.py",
    "hidden_tests/object_codec.py",
    "hidden_tests/module_proxies.py",
    "hidden_tests/code_worker.py",
    "hidden_tests/suite_runner.py",
)
_START: Final = (
    "import gc; gc.disable(); from hermes_verifiers.hidden_tests.suite_runner import main; sys.path.pop(0); "
    "gc.enable(); main()"
)
"""Nothing that the runner imports is garbage, so the collector, which would take a tenth of the start, is off then."""


@dataclass
class _Outcomes:
    """The runner's reports, by test name."""

    names: list[str] = field(default_factory=list)
    passed: dict[str, bool] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    unusable: str = ""
    hopeless: str = ""

    @classmethod
    def of(cls, reports: list[dict[str, Any]]) -> Self:
        outcomes = cls()
        for report in reports:
            outcomes.unusable = outcomes.unusable or report.get("unusable", "")
            outcomes.hopeless = outcomes.hopeless or report.get("hopeless", "")
            outcomes.names += report.get("collected", [])
            if "test" in report:
                outcomes._add(report)
        return outcomes

    def _add(self, report: dict[str, Any]) -> None:
        name = report["test"]
        self.passed[name] = self.passed.get(name, True) and report["outcome"] == "passed"
        if report["outcome"] != "passed":
            self.messages.append(f"{_short(name)} {report['outcome']}: {report['message']}")
        if name not in self.names:
            self.names.append(name)


class HiddenTestsVerifier:
    """Scores the share of hidden tests that pass.

    The tests run in the workspace, by an interpreter in isolated mode: no `conftest.py`, `pytest.ini`,
    `sitecustomize.py` or PYTHONPATH of the workspace is read, and modules of the workspace can be imported but cannot
    replace the standard library. A test that was announced but never reported has failed; a skipped one has not passed.
    If a test named in `required` has not passed, the score is 0.
    """

    class Options(ProtectedOptions):
        """`files` maps names to contents; those called `test_*.py` are run, others can be imported.

        `weights` and `required` use a test's last name (`test_sum`). `import_paths` are relative to the workspace.
        Modules there are imported into a separate process; `imports: "inside"` imports them into the judge's process,
        for tests with objects that cannot be sent (coroutines, subclasses). They can then forge the result.
        """

        files: dict[str, str] = Field(min_length=1)
        runner: Literal["pytest", "unittest"] = "pytest"
        python: str = "python3"
        timeout: Seconds = 120.0
        on_timeout: Literal["fail", "error"] = "fail"
        weights: dict[str, Weight] = Field(default_factory=dict)
        required: list[str] = Field(default_factory=list)
        import_paths: list[str] = Field(default_factory=lambda: ["."])
        imports: Literal["apart", "inside"] = "apart"

        @field_validator("files")
        @classmethod
        def _stay_inside(cls, files: dict[str, str]) -> dict[str, str]:
            for name in files:
                if posixpath.isabs(name) or ".." in name.split("/"):
                    raise ValueError(f"hidden file {name!r}: expected a relative path without '..'")
            return files

        @model_validator(mode="after")
        def _has_tests(self) -> Self:
            if not any(posixpath.basename(name).startswith("test_") and name.endswith(".py") for name in self.files):
                raise ValueError(f"expected a hidden file called test_*.py, got {', '.join(sorted(self.files))}")
            return self

        @model_validator(mode="after")
        def _names_exist(self) -> Self:
            words = {word for text in self.files.values() for word in re.findall(r"\w+", text)}
            if unknown := sorted({*self.weights, *self.required} - words):
                raise ValueError(
                    f"'weights' or 'required' name the test {unknown[0]!r}, but no hidden file contains it"
                )
            return self

    def __init__(self, options: Options) -> None:
        self._options = options

    def protected_paths(self) -> list[str]:
        """Name the paths that the model must not change."""
        return self._options.protected

    async def score(self, result: AgentResult, context: Any) -> Score:
        """Run the hidden tests and compute the score."""
        del result
        nonce = new_nonce()
        async with open_room(context.sandbox) as room:
            ended = await self._run(room, nonce)
        if ended.timed_out and self._options.on_timeout == "error":
            raise VerifierError(f"hidden tests took more than {self._options.timeout:g} s")
        outcomes = _Outcomes.of(objects_with(nonce, ended.stdout))
        if outcomes.unusable:
            raise WorkspaceError(f"hidden tests cannot run: {outcomes.unusable}", hint=self._hint(outcomes.unusable))
        return self._score(outcomes, ended)

    async def _run(self, room: Room, nonce: str) -> ExecResult:
        for name in _PROGRAM:
            text = resources.files("hermes_verifiers").joinpath(name).read_text(encoding="utf-8")
            await room.put(f"program/hermes_verifiers/{name}", text)
        for name, text in self._options.files.items():
            await room.put(f"tests/{name}", text)
        workspace = room.sandbox.workspace
        request = {
            "nonce": nonce,
            "runner": self._options.runner,
            "imports": self._options.imports,
            "program": f"{room.path}/program",
            "tests": f"{room.path}/tests",
            "workspace": workspace,
            "import_paths": [posixpath.join(workspace, path) for path in self._options.import_paths],
        }
        start = f"import sys; sys.path.insert(0, {room.path + '/program'!r}); {_START}"
        command = f"exec {shlex.quote(self._options.python)} -I -B -c {shlex.quote(start)}"
        stdin = json.dumps(request) + "\n"
        return await room.run(command, timeout=self._options.timeout, cwd=room.path, stdin=stdin)

    def _hint(self, problem: str) -> str | None:
        if not problem.endswith("has no pytest"):
            return None
        return 'install pytest for that interpreter, name another one in "python", or set "runner": "unittest"'

    def _score(self, outcomes: _Outcomes, ended: ExecResult) -> Score:
        if outcomes.hopeless:
            return Score(value=0.0, detail=outcomes.hopeless)
        if not outcomes.names and not ended.timed_out:
            raise WorkspaceError(
                f"hidden tests reported nothing; {self._options.python} exited {ended.exit_code}: "
                f"{ended.output.strip()[-400:]}",
                hint=f"is {self._options.python!r} installed in the sandbox, and do the files hold tests?",
            )
        parts = {name: 1.0 if outcomes.passed.get(name, False) else 0.0 for name in outcomes.names}
        detail = "; ".join(filter(None, [failed_parts(parts), *outcomes.messages[:3]]))
        if ended.timed_out:
            detail = f"stopped after {self._options.timeout:g} s; {detail}"
        return Score(value=self._value(parts), parts=parts, detail=detail)

    def _value(self, parts: dict[str, float]) -> float:
        required = [value for name, value in parts.items() if _short(name) in self._options.required]
        if not parts or len(required) < len(self._options.required) or not all(required):
            return 0.0
        return weighted_mean((self._options.weights.get(_short(name), 1.0), value) for name, value in parts.items())


def _short(name: str) -> str:
    """Return a test's short name: `m.Case.test_a` and `m.py::test_a[1]` both give `test_a`."""
    return name.rpartition("::")[2].partition("[")[0].rpartition(".")[2]
