"""What a model of options declares: secrets at any depth and in any form, and the names at each level."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr, StringConstraints

from hermes_core.discovery.components.option_schema import OptionSchema
from hermes_core.redaction.secrets import redact


@dataclass
class Latch:
    code: SecretStr
    label: str = ""


class Door(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: SecretStr | None = None
    name: str = ""
    behind: list[Door] = []


class Window(BaseModel):
    kind: Literal["window"] = "window"
    pane: SecretBytes


class Gate(BaseModel):
    kind: Literal["gate"] = "gate"
    width: int


class Empty(BaseModel):
    pass


class Options(BaseModel):
    model_config = ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)

    code: SecretStr | None = None
    count: int = 0
    doors: tuple[Door, ...] = ()
    by_name: dict[str, Door] = {}
    by_pattern: dict[Annotated[str, StringConstraints(pattern="^k")], SecretStr] = {}
    pair: tuple[str, SecretStr] | None = None
    codes: frozenset[SecretBytes] = frozenset()
    latch: Latch | None = None
    either: Annotated[Window | Gate, Field(discriminator="kind")] | None = None
    door_or_name: Door | str | None = None
    coded: Annotated[SecretStr, Field(alias="Code2")] = SecretStr("")
    plain: dict[str, Any] = {}
    names: list[str] = []
    empty: Empty | None = None
    called: Callable[[], None] | None = None
    marker: object = Field(default=object)


@pytest.mark.parametrize(
    "options",
    [
        {"code": 12345},
        {"code": ["12345"]},
        {"doors": [{"key": "12345"}]},
        {"doors": [{"name": "a", "behind": [{"behind": [{"key": "12345"}]}]}]},
        {"doors": "me:12345@door"},
        {"doors": {"front": "12345"}},
        {"by_name": {"name": {"key": "12345"}}},
        {"by_pattern": {"k1": "12345"}},
        {"pair": ["a", "12345"]},
        {"codes": {"12345"}},
        {"latch": {"code": "12345"}},
        {"either": {"kind": "window", "pane": "12345"}},
        {"door_or_name": {"key": "12345"}},
        {"coded": "12345"},
        {"Code2": "12345"},
        {"misspelt": "12345"},
        {"doors": [{"kye": "12345"}]},
        {"empty": {"key": "12345"}},
    ],
)
def test_what_a_model_declares_as_a_secret_is_marked_also_where_it_was_written_wrongly(options):
    assert "12345" not in json.dumps(redact(OptionSchema(Options).mark(options)))


@pytest.mark.parametrize(
    "options",
    [
        {"count": "many", "names": ["a"], "plain": {"a": [{"b": 1}]}},
        {"doors": [{"name": "a", "behind": [{"name": "b"}]}], "by_name": {"key": {"name": "c"}}},
        {"latch": {"label": "a"}, "either": {"kind": "gate", "width": 3}, "pair": ["a"]},
        {"names": "a,b", "code": None},
    ],
)
def test_what_is_no_secret_stays_as_it_was_written(options):
    assert redact(OptionSchema(Options).mark(options)) == options


def test_a_secret_that_is_marked_already_stays_what_it_is():
    secret = SecretStr("12345")
    marked = OptionSchema(Options).mark({"code": secret, "misspelt": secret, "doors": [{"key": secret}]})
    assert marked == {"code": secret, "misspelt": secret, "doors": [{"key": secret}]}


def test_reading_a_model_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OptionSchema(Options).names_at(["doors", 3]) == ["key", "name", "behind"]


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (["by_name", "front", "behind", 0], ["key", "name", "behind"]),
        (["either", "window"], ["kind", "pane", "width"]),
        (["door_or_name", "Door"], ["key", "name", "behind"]),
        (["latch"], ["code", "label"]),
        (["plain", "a"], []),
    ],
)
def test_the_names_of_each_level_are_known(place, names):
    assert OptionSchema(Options).names_at(place) == names


class Unfinished(BaseModel):
    later: NotYetThere  # type: ignore[name-defined] # noqa: F821 - a model that cannot say what it is made of
    plain: str = ""


def test_of_a_model_that_cannot_be_read_everything_is_secret_and_the_names_are_known():
    schema = OptionSchema(Unfinished)
    assert "12345" not in json.dumps(redact(schema.mark({"plain": "12345", "later": {"a": "12345"}})))
    assert schema.names_at([]) == ["later", "plain"]
