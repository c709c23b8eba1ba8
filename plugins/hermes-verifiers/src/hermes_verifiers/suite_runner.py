"""Runs hidden tests inside the sandbox; sent there as it stands, so standard library only.

Started as `python3 -I -B runner.py` with a JSON line on standard input that holds a nonce. Reports go, each with the
nonce in front, to a duplicate of standard output that no child process inherits; whatever else is printed goes to
standard error. Code under test that is imported into this process could still find the nonce: tests against a
determined cheat start it as a child process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import unittest
from pathlib import Path
from typing import Any


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

    def __init__(self, channel: Channel) -> None:
        """Report to a channel."""
        self._channel = channel
        self._setup_failed: set[str] = set()

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


def run_pytest(channel: Channel, files: list[Path], tests: Path) -> None:
    """Run test files with pytest, deaf to every configuration but the hidden files' own."""
    import pytest

    settings = tests / "pytest.ini"
    if not settings.exists():
        settings.write_text("[pytest]\n")
    isolation = ["-c", str(settings), f"--rootdir={tests}", f"--confcutdir={tests}", "-p", "no:cacheprovider", "-q"]
    pytest.main([*isolation, "--import-mode=importlib", *map(str, files)], plugins=[PytestReporter(channel)])


def main() -> None:
    """Read the request, run the tests, report."""
    request = json.loads(sys.stdin.buffer.readline())
    channel = Channel(request["nonce"])
    if request["runner"] == "pytest" and importlib.util.find_spec("pytest") is None:
        channel.send(unusable=f"{sys.executable} has no pytest")
        return
    tests = Path(request["tests"])
    sys.path.insert(0, str(tests))
    # Behind the standard library: a file of the model's cannot take the place of `unittest` or `json`.
    sys.path += request["import_paths"]
    files = sorted(tests.rglob("test_*.py"))
    for path in files:
        try:
            compile(path.read_bytes(), path.name, "exec")
        except SyntaxError as error:
            channel.send(unusable=f"hidden test {path.name}: {error}")
            return
    try:
        os.chdir(request["workspace"])
    except OSError as error:
        channel.send(hopeless=f"the workspace cannot be entered: {error}")
        return
    if request["runner"] == "pytest":
        run_pytest(channel, files, tests)
    else:
        run_unittest(channel, files)
    channel.send(done=True)


if __name__ == "__main__":
    main()
