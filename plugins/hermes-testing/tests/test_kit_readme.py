"""The README names every tested behaviour of backends and engines. To rewrite the lists, run this file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermes_testing import BackendSuite, EngineSuite

README = Path(__file__).parents[1] / "README.md"
SUITES = {"behaviours": BackendSuite, "engine behaviours": EngineSuite}


def sentence(test):
    return test.removeprefix("test_").replace("_s_", "'s ").replace("_", " ")


def behaviours(suite):
    """Return the list: a paragraph for each part of the suite, in the order of its tests."""
    lines = []
    for part in suite.__mro__:
        tests = [name for name in vars(part) if name.startswith("test_")]
        if tests and part.__module__.startswith(("hermes_testing.suites.backend.", "hermes_testing.suites.engine.")):
            lines.append(f"- **{part.__name__}** ({len(tests)}): {'; '.join(map(sentence, tests))}.")
    return "\n".join(lines) + "\n"


def parts(mark):
    before, begin, rest = README.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    listed, end, after = rest.partition(f"<!-- /{mark} -->")
    return before + begin, listed, end + after


@pytest.mark.parametrize("mark", list(SUITES))
def test_the_readme_lists_every_behaviour(mark):
    assert parts(mark)[1] == behaviours(SUITES[mark]), f"run: python {Path(__file__).name}"


@pytest.mark.parametrize("suite", SUITES.values())
def test_every_behaviour_is_a_sentence_with_a_line_of_its_own(suite):
    tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert [test.__name__ for test in tests if not (test.__doc__ or "").strip()] == []


@pytest.mark.parametrize(("suite", "fewest"), [(BackendSuite, 60), (EngineSuite, 30)])
def test_there_are_many_behaviours(suite, fewest):
    assert behaviours(suite).count(";") >= fewest


if __name__ == "__main__":
    for mark, suite in SUITES.items():
        before, _, after = parts(mark)
        README.write_text(before + behaviours(suite) + after, encoding="utf-8")
    sys.stdout.write(f"{README} is written\n")
