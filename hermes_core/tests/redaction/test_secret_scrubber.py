"""Known secrets are taken out of errors, whatever their causes are made of."""

from __future__ import annotations

import traceback

import pytest
from pydantic import TypeAdapter

from hermes_core.contracts.errors import BackendError
from hermes_core.redaction.scrubber import SecretScrubber

MARK = "m4rk3r-m4rk3r"


class OddError(Exception):
    """Makes its text of what it has, and has a message of its own that nobody can set."""

    message = property(lambda _: f"met {MARK}")

    def __str__(self):
        return f"at {MARK}"


def error_with_note():
    error = ValueError("plain")
    error.add_note(f"with {MARK}")
    return error


def validation_error():
    try:
        TypeAdapter(int).validate_python(MARK)
    except ValueError as error:
        return error


def error_with_cause():
    error = BackendError(f"no {MARK}", hint=f"try {MARK}")
    error.__cause__ = KeyError(MARK)
    return ExceptionGroup("several", [error])


CAUSES = {
    "a group": ExceptionGroup("several", [ValueError(MARK)]),
    "a group of errors with causes": error_with_cause(),
    "a plain group": ExceptionGroup("several", [ValueError("plain")]),
    "an error of the system": FileNotFoundError(2, "no such file", f"/run/{MARK}"),
    "nested arguments": RuntimeError({"token": (MARK,)}),
    "a text of its own": OddError(),
    "a note": error_with_note(),
    "bytes": UnicodeDecodeError("utf-8", MARK.encode(), 0, 1, f"no {MARK}"),
    "a validation": validation_error(),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_no_cause_of_an_error_repeats_a_secret(cause, link):
    error = BackendError(f"refused {MARK}", hint=f"not {MARK}")
    setattr(error, link, cause)
    assert SecretScrubber([MARK]).error(error) is error
    said = "".join(traceback.format_exception(error))
    assert MARK not in said
    assert "refused (withheld)" in said
    assert (error.message, error.hint) == ("refused (withheld)", "not (withheld)")
    assert type(cause).__name__ in said


def test_errors_without_secrets_stay_what_they_are():
    inner, outer = ExceptionGroup("several", [ValueError("plain")]), BackendError("it failed")
    inner.__context__, outer.__cause__ = outer, inner
    SecretScrubber([MARK]).error(outer)
    assert (outer.__cause__, inner.__context__) == (inner, outer)


def test_what_is_shorter_than_eight_characters_is_not_looked_for():
    assert SecretScrubber(["testing", "longenough"]).text("testing is longenough") == "testing is (withheld)"
