"""The suites can fail: exactly the named tests catch each broken component. A separate pytest runs every file of
`mutants/` with a third party's settings (pytest-asyncio in strict mode).
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest

BY_CHANCE = {
    "test_a_change_in_one_call_leaves_the_others",
    "test_a_closed_block_around_any_text_is_a_call_or_an_attempt",
    "test_a_stream_is_a_parse_for_any_cuts",
    "test_a_thousand_spoilt_messages_keep_every_promise",
    "test_any_arguments_arrive_unchanged",
    "test_any_mixture_of_marks_does_not_raise",
}
"""They may catch a mutant in addition to its named tests, depending on the drawn examples."""

# A whole pytest runs within each test, on machines that may be busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MUTANTS = Path(__file__).parent / "mutants"
FOLDERS = [str(MUTANTS), *(str(MUTANTS / kind) for kind in ("backend", "engine", "parser"))]


def run(selection, tmp_path):
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", *map(str, selection), "-c", str(MUTANTS / "pytest.ini"), "--tb=no"]
    path = os.pathsep.join([*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    command.append(f"--junitxml={report}")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return ET.parse(report).getroot().iter("testcase"), done.stdout


def failures(selection, tmp_path):
    cases, _ = run(selection, tmp_path)
    failed: dict[str, set[str]] = {}
    for case in cases:
        names = failed.setdefault(case.get("classname").rpartition(".")[2], set())
        if case.find("failure") is not None or case.find("error") is not None:
            names.add(case.get("name").partition("[")[0])
    return failed


def file_of(kind):
    """Return the file of one kind's mutants, in whichever folder."""
    (path,) = MUTANTS.rglob(f"{kind}_mutants.py")
    return path


def mutants(kind):
    path = file_of(kind)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", [*FOLDERS, *sys.path])
        spec.loader.exec_module(module)
    return {name: found for name, found in inspect.getmembers(module, inspect.isclass) if name.startswith("Test")}


def expectations(kind):
    return {name: set(vars(found).get("caught_by", ())) for name, found in mutants(kind).items()}


@pytest.mark.parametrize(
    "kind",
    [
        "parser",
        "block",
        "field",
        "value",
        "stream",
        "plugin",
        "tool",
        "verifier",
        "model",
        "service",
        "lease_store",
        "rules",
    ],
)
def test_each_mutant_is_caught_by_its_named_tests(kind, tmp_path):
    expected = expectations(kind)
    found = failures([file_of(kind)], tmp_path)
    assert {name: caught - (BY_CHANCE - expected[name]) for name, caught in found.items()} == expected


ENGINE_PARTS = sorted(path.name.removesuffix("_mutants.py") for path in MUTANTS.glob("engine/engine_*_mutants.py"))
BACKEND_PARTS = sorted(path.name.removesuffix("_mutants.py") for path in MUTANTS.glob("backend/backend_*_mutants.py"))
SAMPLE = 1 if os.environ.get("HERMES_KIT_MUTANTS") == "all" else 6
"""A broken backend or engine runs the tests that must fail and every Nth other, chosen by the names of both."""


def drawn_tests(kind):
    """Return the tests that are run, as pytest names them."""
    nodes = []
    # Every broken engine has the whole suite, which performs whole runs.
    sample = SAMPLE if SAMPLE == 1 or kind in BACKEND_PARTS else 4 * SAMPLE
    for name, mutant in mutants(kind).items():
        # Attacks that a mutant must not run are None in its class.
        tests = {test for test in dir(mutant) if test.startswith("test_") and getattr(mutant, test)}
        assert mutant.caught_by <= tests, f"{name} names tests that its part of the suite does not have"
        others = {test for test in tests if zlib.crc32(f"{name} {test}".encode()) % sample == 0}
        chosen = mutant.caught_by | others or {min(tests)}
        nodes += [f"{file_of(kind)}::{name}::{test}" for test in sorted(chosen)]
    return nodes


@pytest.mark.parametrize("kind", [*BACKEND_PARTS, *ENGINE_PARTS])
def test_each_broken_backend_or_engine_is_caught_by_its_named_tests(kind, tmp_path):
    assert failures(drawn_tests(kind), tmp_path) == expectations(kind)


def test_there_are_enough_broken_backends():
    assert sum(bool(caught) for kind in BACKEND_PARTS for caught in expectations(kind).values()) >= 30


def test_there_are_enough_broken_engines():
    assert sum(bool(caught) for kind in ENGINE_PARTS for caught in expectations(kind).values()) >= 40


@pytest.mark.parametrize(
    ("kind", "enough"),
    [
        ("parser", 20),
        ("block", 8),
        ("field", 5),
        ("value", 4),
        ("stream", 10),
        ("plugin", 10),
        ("tool", 8),
        ("verifier", 8),
        ("model", 15),
        ("service", 8),
        ("lease_store", 14),
    ],
)
def test_there_are_enough_mutants(kind, enough):
    assert sum(bool(caught) for caught in expectations(kind).values()) >= enough
