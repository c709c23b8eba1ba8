"""Runs hidden tests inside the sandbox; sent there as it stands, so standard library only.

Started in isolated mode with a JSON line on standard input that holds a nonce. Reports go, each with the nonce in
front, to a duplicate of standard output that no child process inherits; whatever else is printed goes to standard
error. The code under test is imported into another process (`code_worker`), which can neither look into this one nor
read the hidden tests: they are held in memory, and their files are empty by the time anything of the model's runs.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_verifiers.hidden_tests.module_proxies import Apart

if TYPE_CHECKING:
    import types

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522
_PRYING = (16, 17, 19, 21, 39, 40)
"""Capabilities that reach into other processes: modules, raw I/O, ptrace, administration, BPF, checkpoints."""


class Channel:
    """Writes the reports."""

    def __init__(self, nonce: str) -> None:
        """Take standard output away from everything else."""
        self._nonce = nonce.encode()
        self._out = os.dup(1)
        os.dup2(2, 1)

    def send(self, **report: Any) -> None:
        """Write one report as a line of its own."""
        os.write(self._out, b"%s %s\n" % (self._nonce, json.dumps(report).encode()))

    def test(self, name: str, outcome: str, message: object = "") -> None:
        """Report one test's outcome."""
        self.send(test=name, outcome=outcome, message=str(message).strip()[-300:])


class Result(unittest.TestResult):
    """Passes on what unittest finds; a test with failing sub-tests has failed."""

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
        """Report the test as soon as it is over, so that a later crash does not lose it."""
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
    """A pytest plugin that passes on what pytest finds."""

    def __init__(self, channel: Channel, hidden: Hidden) -> None:
        """Report to a channel."""
        self._channel = channel
        self._hidden = hidden

    def pytest_configure(self) -> None:
        """Stay the first to be asked for hidden modules: pytest's own importer would read the emptied files."""
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
        """Report a test; trouble in its fixtures counts as failed, also after it has passed."""
        if report.when == "call" or not report.passed:
            self._channel.test(report.nodeid, report.outcome, report.longrepr if report.failed else "")


def run_pytest(channel: Channel, hidden: Hidden, tests: Path) -> None:
    """Run test files with pytest, deaf to every configuration but the hidden files' own."""
    import pytest

    settings = tests / "pytest.ini"
    if not settings.exists():
        settings.write_text("[pytest]\n")
    isolation = ["-c", str(settings), f"--rootdir={tests}", f"--confcutdir={tests}", "-p", "no:cacheprovider", "-q"]
    arguments = [*isolation, "--import-mode=importlib", *map(str, hidden.tests())]
    pytest.main(arguments, plugins=[PytestReporter(channel, hidden)])


class Hidden(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the hidden files from memory; on the disk they are empty."""

    def __init__(self, root: Path) -> None:
        """Read all Python files below a directory."""
        self._root = root
        self._sources = {path: path.read_bytes() for path in sorted(root.rglob("*.py"))}

    def check(self) -> str:
        """Return what is wrong with the first file that is no Python, or an empty text."""
        for path, source in self._sources.items():
            try:
                compile(source, path.name, "exec")
            except (SyntaxError, ValueError) as error:
                return f"hidden test {path.name}: {error}"
        return ""

    def empty(self) -> None:
        """Leave nothing to be read on the disk."""
        for path in self._sources:
            path.write_bytes(b"")

    def tests(self) -> list[Path]:
        """Return the files that hold tests."""
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
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=str(file), is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(file.parent)]
        return spec

    def get_source(self, fullname: str) -> str:
        """Return a module's text; tracebacks quote it."""
        spec = self.find_spec(fullname) or getattr(sys.modules.get(fullname), "__spec__", None)
        if spec is None or spec.origin is None:
            raise ImportError(fullname)
        return self._sources[Path(spec.origin)].decode("utf-8", "replace")

    def exec_module(self, module: types.ModuleType) -> None:
        """Run a module."""
        origin = str(module.__spec__ and module.__spec__.origin)
        exec(compile(self._sources[Path(origin)], origin, "exec"), module.__dict__)  # noqa: S102 - the hidden tests


def harden() -> None:
    """Let no other process look into this one, through /proc for instance, not even one of root's that it starts."""
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
    # What was read could be read again by a child that inherits it, if it is a file.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    channel = Channel(request["nonce"])
    if request["runner"] == "pytest" and importlib.util.find_spec("pytest") is None:
        channel.send(unusable=f"{sys.executable} has no pytest")
        return
    harden()
    hidden = Hidden(Path(request["tests"]))
    if problem := hidden.check():
        channel.send(unusable=problem)
        return
    try:
        os.chdir(request["workspace"])
    except OSError as error:
        channel.send(hopeless=f"the workspace cannot be entered: {error}")
        return
    apart = Apart(request["program"], request["import_paths"])
    if request["imports"] == "apart":
        hidden.empty()
        # Behind the standard library: a file of the model's cannot take the place of `unittest` or `json`.
        sys.meta_path.append(apart)
    else:
        sys.path += request["import_paths"]
    sys.meta_path.insert(0, hidden)
    try:
        run(request["runner"], channel, hidden, Path(request["tests"]))
    finally:
        apart.close()
    channel.send(done=True)


def run(runner: str, channel: Channel, hidden: Hidden, tests: Path) -> None:
    """Run the tests with one of the two runners."""
    if runner == "pytest":
        run_pytest(channel, hidden, tests)
    else:
        run_unittest(channel, hidden.tests())
