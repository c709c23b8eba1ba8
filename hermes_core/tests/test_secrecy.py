"""What is withheld of a configuration, by declaration, by name, by place and by form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from planted_secrets import LEAVES, MARK, nested, planted
from pydantic import BaseModel, SecretStr

from hermes_core.contracts.secrecy import (
    WITHHELD,
    comparable,
    declared,
    find_withheld,
    hidden,
    is_secret_name,
    kept,
    shown,
    shown_address,
    texts,
)


@given(nested(LEAVES | planted()))
def test_a_secret_is_withheld_however_deep_it_lies(value):
    assert MARK not in json.dumps(hidden(value))
    assert MARK not in json.dumps(comparable(hidden(value)))
    assert MARK not in json.dumps(kept({"options": value}))


@given(nested(LEAVES))
def test_what_holds_no_secret_is_shown_as_it_is(value):
    assert hidden(value) == value
    assert kept({"options": value}) == ({"options": value}, ())


@given(nested(LEAVES | planted()))
def test_hiding_what_is_hidden_changes_nothing_more(value):
    assert hidden(hidden(value)) == hidden(value)


@pytest.mark.parametrize(
    "name",
    ["api_key_env", "tokenizer", "max_tokens", "token_id", "eos_token", "registry_secret", "key", "client_key", "path"],
)
def test_a_name_that_only_reminds_of_a_secret_is_none(name):
    assert not is_secret_name(name)
    assert hidden({name: "plain"}) == {name: "plain"}


def test_of_an_environment_the_names_stay():
    assert hidden({"env": {"A": "x", "B": None}}) == {"env": {"A": WITHHELD, "B": None}}
    assert hidden({"env_vars": "A=x;B=y", "environment": "main"}) == {"env_vars": WITHHELD, "environment": "main"}
    assert hidden({"env": ["A=x", "B"]}) == {"env": [f"A={WITHHELD}", "B"]}


def test_of_a_url_only_the_secret_part_goes():
    assert shown("at https://me:pw@host:1/v1?a=1&sig=xyz#f") == f"at https://{WITHHELD}@host:1/v1?a=1&sig={WITHHELD}#f"
    assert shown("http://host:80/image@sha256:1f and a@b") == "http://host:80/image@sha256:1f and a@b"
    assert shown_address("tcp://me:p#w@host:1") == f"tcp://{WITHHELD}@host:1"
    assert shown_address("me:pw@host") == f"{WITHHELD}@host"


def test_what_is_kept_can_be_used_again_and_says_what_it_lacks():
    values = {
        "address": "https://me:pw@host/v1",
        "token": "t",
        "env": {"A": "x"},
        "auth": {"username": "me", "password": "pw"},
    }
    public, withheld = kept(values)
    assert public == {"address": "https://host/v1", "env": {}, "auth": {"username": "me"}}
    assert withheld == ("address", "token", "auth.password")


class Door(BaseModel):
    key: SecretStr | None = None
    name: str = ""


class Options(BaseModel):
    code: SecretStr | None = None
    doors: tuple[Door, ...] = ()
    by_name: dict[str, Door] = {}


@pytest.mark.parametrize(
    "options",
    [
        {"code": 12345},
        {"code": ["12345"]},
        {"doors": [{"key": "12345"}]},
        {"doors": "me:12345@door"},
        {"by_name": {"a": {"key": "12345", "name": "b"}}},
        {"misspelt": "12345"},
    ],
)
def test_what_a_model_declares_as_a_secret_is_withheld_also_where_it_was_written_wrongly(options):
    assert "12345" not in json.dumps(hidden(declared(options, Options)))


def test_two_settings_that_differ_in_secrets_only_are_the_same_ones():
    def settings(token, **env):
        return hidden({"token": token, "url": f"http://a:{token}@host", "env": env} if token else {"env": env})

    assert comparable(settings("one", A="x")) == comparable(settings("two", A="y"))
    assert comparable(settings("one", A="x")) != comparable(settings("one", B="x"))
    assert comparable(settings("one", A="x")) == comparable(settings(None, A="x")) | {"url": "http://host"}
    assert comparable({"backends": {"nomad": {"token": WITHHELD}}}) == comparable({"backends": {}})
    plain = comparable({"options": {"image": "a", "env": {"A": "x"}}})
    assert plain == comparable(hidden({"options": {"image": "a", "token": "new", "env": {"A": "y"}}}))
    assert plain != comparable({"options": {"image": "b", "env": {"A": "x"}}})


def test_the_places_of_what_was_withheld_are_found():
    printed = hidden({"token": "t", "list": [{"url": "http://a:b@c"}], "prompt": "say (withheld) twice"})
    assert list(find_withheld(printed)) == ["token", "list.0.url"]


def test_a_variable_is_looked_for_elsewhere_only_where_it_cannot_be_a_word():
    env = {"MODE": "production", "DB_PASSWORD": "production!", "A": "sk-0123456789abcdef", "URL": "http://a:b@c/d"}
    assert texts({"env": env}) == {"production!", "sk-0123456789abcdef", "b"}
    assert texts({"token": "t", "url": f"https://me:pw@host?sig=s&a={MARK}", "args": ["--password=p"]}) == {
        "t",
        "pw",
        "s",
        "p",
    }
