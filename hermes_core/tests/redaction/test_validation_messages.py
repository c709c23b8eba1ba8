"""What pydantic says of a wrong value, as a message for a user."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from hermes_core.redaction import validation_message


class Door(BaseModel):
    height: int = 2
    side: Literal["left", "right"] = "left"
    color: str = "red"
    width: int = 1

    @field_validator("color")
    @classmethod
    def _is_known(cls, value):
        if value != "red":
            raise ValueError(f"expected red, got {value!r}")
        return value

    @field_validator("width")
    @classmethod
    def _is_odd(cls, value):
        if value % 2 == 0:
            raise AssertionError("the width must be odd")
        return value


def problem_of(**values):
    with pytest.raises(ValidationError) as caught:
        Door(**values)
    return caught.value.errors()[0]


@pytest.mark.parametrize(
    ("values", "found", "message"),
    [
        ({"side": "up"}, "'up'", "expected 'left' or 'right', got 'up'"),
        ({"color": "blue"}, "'blue'", "expected red, got 'blue'"),
        ({"width": 2}, "2", "the width must be odd, got 2"),
        ({"side": "up"}, "", "expected 'left' or 'right'"),
    ],
)
def test_a_problem_is_told_without_pydantics_prefixes_and_with_the_value_once(values, found, message):
    assert validation_message(problem_of(**values), found) == message
