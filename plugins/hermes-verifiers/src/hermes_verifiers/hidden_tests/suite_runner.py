"""Run hidden tests inside the sandbox. The source is sent there, so it uses only the standard library.

It starts in isolated mode with a JSON line on standard input that contains a nonce. Reports, each with the nonce before
it, go to a duplicate of standard output that no child process inherits; all other output goes to standard error. The
code under test is imported into another process (`code_worker`), which can neither inspect this one nor read the hidden
tests: they are held in memory, and their files are empty before any code of the model runs.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import sys
import unittest
from pathlib import Path

from hermes_verifiers.hidden_tests.module_proxies import Apart

# `typing` and `importlib.abc`, with all that the latter imports, would be a third of the start of this program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from typing import Any

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522
_PRYING = (16, 17, 19, 21, 39, 40)
"""Capabilities that give access to other processes: modules, raw I/O, ptrace, administration, BPF, checkpoints."""


class Channel:
    """Writes the reports."""

    def __init__(self, nonce: str) -> None:
        """Reserve standard output for reports."""
        self._nonce = nonce.encode()
        self._out = os.dup(1)
        os.dup2(2, 1)

    def send(self, **report: Any) -> None:
        """Write one report as a separate line."""
        os.write(self._out, b"%s %s\n" % (self._nonce, json.dumps(report).encode()))

    def test(self, name: str, outcome: str, message: object = "") -> None:
        """Report one test's outcome."""
        self.send(test=name, outcome=outcome, message=str(message).strip()[-300:])


class Result(unittest.TestResult):
    """Reports results of unittest; a test with failing sub-tests has failed."""

    def __init__(self, channel: Channel) -> None:
        """Report to a channel."""
        super().__init__()
        self._channel = channel
        self._outcomes: dict[str, tuple[str, object]] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        """Note a pass, unless a sub-test has failed."""
        self._outcomes.setdefault(test.id(), ("passed", ""))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        """Note a failed assertion."""
        self._outcomes[test.id()] = ("failed", err[1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        """Note another exception."""
        self._outcomes[test.id()] = ("failed", f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - unittest's name
        """Note a skipped test."""
        self._outcomes[test.id()] = ("skipped", reason)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        """Note a failed sub-test as a failure of its test."""
        if err is not None:
            self._outcomes[test.id()] = ("failed", f"{subtest._subDescription()}: {err[1]}")  # type: ignore[attr-defined]  # noqa: SLF001 - unittest has no public way

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        """Report the test as soon as it ends, so that a later crash does not lose the result."""
        super().stopTest(test)
        self._channel.test(test.id(), *self._outcomes.get(test.id(), ("failed", "no result")))


def run_unittest(channel: Channel, files: list[Path]) -> None:
    """Run test files with the standard library alone."""
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for path in files:
        suite.addTests(loader.loadTestsFromName(path.stem))
    channel.send(collected=[test.id() for test in _flat(suite)])
    suite.run(Result(channel))


def _flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    tests: list[unittest.TestCase] = []
    for test in suite:
        tests += _flat(test) if isinstance(test, unittest.TestSuite) else [test]
    return tests


class PytestReporter:
    """A pytest plugin that reports results of pytest."""

    def __init__(self, channel: Channel, hidden: Hidden) -> None:
        """Report to a channel."""
        self._channel = channel
        self._hidden = hidden

    def pytest_configure(self) -> None:
        """Stay the first importer of hidden modules: pytest's importer would read the emptied files."""
        sys.meta_path.remove(self._hidden)
        sys.meta_path.insert(0, self._hidden)

    def pytest_collectreport(self, report: Any) -> None:
        """Report a file that could not be collected as one failed test."""
        if report.failed:
            self._channel.test(report.nodeid, "failed", report.longrepr)

    def pytest_collection_finish(self, session: Any) -> None:
        """Announce the tests before the first one runs."""
        self._channel.send(collected=[item.nodeid for item in session.items])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Report a test; an error in a fixture counts as failed, even after the test has passed."""
        if report.when == "call" or not report.passed:
            self._channel.test(report.nodeid, report.outcome, report.longrepr if report.failed else "")


def run_pytest(channel: Channel, hidden: Hidden, tests: Path) -> None:
    """Run test files with pytest; only the configuration in the hidden files is used."""
    import pytest

    settings = tests / "pytest.ini"
    if not settings.exists():
        settings.write_text("[pytest]\n")
    isolation = ["-c", str(settings), f"--rootdir={tests}", f"--confcutdir={tests}", "-p", "no:cacheprovider", "-q"]
    arguments = [*isolation, "--import-mode=importlib", *map(str, hidden.tests())]
    pytest.main(arguments, plugins=[PytestReporter(channel, hidden)])


class Hidden:
    """Imports the hidden files from memory; on the disk they are empty. It finds modules and loads what it finds."""

    def __init__(self, root: Path) -> None:
        """Read all Python files below a directory."""
        self._root = root
        self._sources = {path: path.read_bytes() for path in sorted(root.rglob("*.py"))}
        self._codes: dict[Path, types.CodeType] = {}

    def compile(self) -> str:
        """Compile the files; return the error of the first one that is not valid Python, or ""."""
        for path, source in self._sources.items():
            try:
                self._codes[path] = compile(source, str(path), "exec")
            except (SyntaxError, ValueError) as error:
                return f"hidden test {path.name}: {error}"
        return ""

    def empty(self) -> None:
        """Empty the files on the disk."""
        for path in self._sources:
            path.write_bytes(b"")

    def tests(self) -> list[Path]:
        """Return the files with tests."""
        return [path for path in self._sources if path.name.startswith("test_")]

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find a hidden module, in a folder of hidden files."""
        del target
        tail = fullname.rpartition(".")[2]
        for folder in map(Path, path or [self._root]):
            for file, is_package in ((folder / tail / "__init__.py", True), (folder / f"{tail}.py", False)):
                if file in self._sources:
                    return self._spec(fullname, file, is_package=is_package)
        return None

    def _spec(self, fullname: str, file: Path, *, is_package: bool) -> importlib.machinery.ModuleSpec:
        loader: Any = self  # a type checker expects a class of `importlib.abc`
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=str(file), is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(file.parent)]
        return spec

    def get_source(self, fullname: str) -> str:
        """Return a module's text; tracebacks quote it."""
        return self._sources[self._origin(fullname)].decode("utf-8", "replace")

    def _origin(self, fullname: str) -> Path:
        spec = self.find_spec(fullname) or getattr(sys.modules.get(fullname), "__spec__", None)
        if spec is None or spec.origin is None:
            raise ImportError(fullname)
        return Path(spec.origin)

    def is_package(self, fullname: str) -> bool:
        """Tell whether a module is a package."""
        return Path(self._origin(fullname)).name == "__init__.py"

    def get_code(self, fullname: str) -> types.CodeType:
        """Return a module's code, for `runpy` and its like."""
        return self._codes[self._origin(fullname)]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None: Python creates the module in its usual way."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Run a module."""
        origin = Path(str(module.__spec__ and module.__spec__.origin))
        exec(self._codes[origin], module.__dict__)  # noqa: S102 - the hidden tests


def harden() -> None:
    """Prevent other processes, even root's children of this one, from inspecting it, for example through /proc."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the same for the upper half
    libc.capget(header, sets)
    for number in _PRYING:
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
        for half in range(3):
            sets[number // 32 * 3 + half] &= ~(1 << number % 32)
    libc.capset(header, sets)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Read the request, run the tests, report."""
    request = json.loads(sys.stdin.buffer.readline())
    # If standard input is a file, a child that inherits it could read it again.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    channel = Channel(request["nonce"])
    if request["runner"] == "pytest" and importlib.util.find_spec("pytest") is None:
        channel.send(unusable=f"{sys.executable} has no pytest")
        return
    harden()
    hidden = Hidden(Path(request["tests"]))
    if problem := hidden.compile():
        channel.send(unusable=problem)
        return
    try:
        os.chdir(request["workspace"])
    except OSError as error:
        channel.send(hopeless=f"cannot enter the workspace: {error}")
        return
    apart = Apart(request["program"], request["import_paths"])
    if request["imports"] == "apart":
        hidden.empty()
        # After the standard library, so that a file of the model cannot replace `unittest` or `json`.
        sys.meta_path.append(apart)
    else:
        sys.path += request["import_paths"]
    sys.meta_path.insert(0, hidden)
    try:
        run(request["runner"], channel, hidden, Path(request["tests"]))
    finally:
        apart.close()
    channel.send(done=True)
    _end()


def _end() -> None:
    """End this process; Python's own end would take it apart, and wait for threads that the tests have left."""
    try:
        atexit._run_exitfuncs()  # noqa: SLF001 - what Python itself calls
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)


def run(runner: str, channel: Channel, hidden: Hidden, tests: Path) -> None:
    """Run the tests with one of the two runners."""
    if runner == "pytest":
        run_pytest(channel, hidden, tests)
    else:
        run_unittest(channel, hidden.tests())
