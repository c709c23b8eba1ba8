"""The README names every behaviour that a backend is tested for. To write the list anew, run this file."""

from __future__ import annotations

import sys
from pathlib import Path

from hermes_testing import BackendSuite

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- behaviours -->\n", "<!-- /behaviours -->"


def sentence(test):
    return test.removeprefix("test_").replace("_s_", "'s ").replace("_", " ")


def behaviours():
    """Return the list: a paragraph for each part of the suite, in the order of its tests."""
    lines = []
    for part in BackendSuite.__mro__:
        tests = [name for name in vars(part) if name.startswith("test_")]
        if tests and part.__module__.startswith("hermes_testing.suites.backend_"):
            lines.append(f"- **{part.__name__}** ({len(tests)}): {'; '.join(map(sentence, tests))}.")
    return "\n".join(lines) + "\n"


def parts():
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    listed, _, after = rest.partition(END)
    return before, listed, after


def test_the_readme_lists_every_behaviour_of_a_backend():
    assert parts()[1] == behaviours(), f"run: python {Path(__file__).name}"


def test_every_behaviour_is_a_sentence_with_a_line_of_its_own():
    tests = [getattr(BackendSuite, name) for name in dir(BackendSuite) if name.startswith("test_")]
    assert [test.__name__ for test in tests if not (test.__doc__ or "").strip()] == []


def test_a_backend_is_tested_for_many_behaviours():
    assert behaviours().count(";") >= 60


if __name__ == "__main__":
    before, _, after = parts()
    README.write_text(before + BEGIN + behaviours() + END + after, encoding="utf-8")
    sys.stdout.write(f"{README} is written\n")
