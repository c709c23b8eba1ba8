"""What a component says of wrong options: what was wanted, what was found, and no secret."""

from __future__ import annotations

import textwrap
import traceback

import pytest
from throwaway_plugins import verifier

from hermes_core.contracts.errors import BackendError, BrokenComponentError, ConfigError

SECRET = "s3cret-s3cret"
OPTIONS = """
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

class Door(BaseModel):
    model_config = ConfigDict(extra="forbid")
    key: SecretStr
    name: str = ""

    @field_validator("key")
    @classmethod
    def _long(cls, value):
        if value.get_secret_value().startswith("bad"):
            raise ValueError(f"{value.get_secret_value()} opens nothing, x neither")
        return value

class Options(BaseModel):
    door: Door | int | None = None
    doors: list[Door] = []
    equal: str = ""
    few: int = 0
    breaks: str = ""

    @model_validator(mode="after")
    def _breaks(self):
        if self.breaks == "validating":
            raise RuntimeError(f"no way to http://me:pw@host with {self.doors[0].key.get_secret_value()}")
        return self
"""
BODY = """
        Options = Options

        def __init__(self, options):
            from hermes_core.contracts.errors import BackendError

            key = options.doors[0].key.get_secret_value() if options.doors else ""
            if options.breaks == "building":
                raise KeyError(f"{key} opens nothing")
            if options.breaks == "connecting":
                raise BackendError(f"{key} is refused", hint=f"another one than {key}") from OSError(f"no {key}")
"""


@pytest.fixture
def create(site, load):
    site.install("acme-doors", OPTIONS + textwrap.dedent(verifier("doors", body=BODY.strip())))
    registry = load("acme-doors")
    return lambda options: registry.create("verifier", "doors", options)


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"few": "x"}, r"few: .*integer.*, got 'x'$", "known options: door, doors, equal, few, breaks"),
        ({"few": "http://me:pw@host"}, r"got 'http://\(withheld\)@host'$", "known options: door, "),
        ({"equal": ["x"]}, r"equal: .*string.*, got \['x'\]$", "known options: door, "),
        ({"doors": [{"name": "x"}]}, r"doors\.0\.key is missing$", "known options of doors.0: key, name"),
        ({"doors": [{"key": ["x"]}]}, r"got \['\(withheld\)'\]$", "known options of doors.0: key, name"),
        (
            {"doors": [{"key": f"bad-{SECRET}"}]},
            r": \(withheld\) opens nothing, x neither, got",
            "known",
        ),
        ({"doors": SECRET}, r"doors: .*list.*, got '\(withheld\)'$", "known options: door, "),
        ({"door": {"key": [SECRET]}}, r"door\.Door\.key: .*, got \['\(withheld\)'\]", "known options of door.Door: "),
        (
            {"doors": [{"key": "k", "equal": "x"}]},
            r"unknown option 'doors\.0\.equal'$",
            "known options of doors.0:",
        ),
        (
            {"doors": [{"key": "k", "nam": SECRET}]},
            r"unknown option 'doors\.0\.nam'$",
            "did you mean 'name'? Known options of doors.0: key, name",
        ),
        ({"equals": "x"}, r"has no option 'equals'$", "did you mean 'equal'? Known options: door, "),
    ],
)
def test_an_error_says_what_was_found_and_what_is_known_at_its_level(create, options, said, hint):
    with pytest.raises(ConfigError) as caught:
        create(options)
    assert caught.match(f"(?m){said}")
    assert caught.value.hint.startswith(hint)
    told = "".join(traceback.format_exception(caught.value))
    assert (SECRET in told, ":pw@" in told) == (False, False)


@pytest.mark.parametrize(
    ("breaks", "error", "said"),
    [
        ("validating", BrokenComponentError, r"no way to http://\(withheld\)@host with \(withheld\)"),
        ("building", BrokenComponentError, r"\(withheld\) opens nothing"),
        ("connecting", BackendError, r"(?s)\(withheld\) is refused.*another one than \(withheld\)"),
    ],
)
def test_no_error_of_the_components_own_code_repeats_a_secret(create, breaks, error, said):
    with pytest.raises(error, match=said) as caught:
        create({"breaks": breaks, "doors": [{"key": SECRET}]})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
