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


def test_hiding_a_quoted_secret_twice_keeps_what_stands_behind_it():
    once = hidden("export API_KEY='two words'; run")
    assert once == hidden(once) == f"export API_KEY={WITHHELD}; run"


@pytest.mark.parametrize(
    "name",
    [
        "api_key_env",
        "tokenizer",
        "max_tokens",
        "token_id",
        "eos_token",
        "registry_secret",
        "key",
        "client_key",
        "path",
        "EOSToken",
        "pass_1",
        "pass1",
        "reserved_special_token_0",
        "eot_token",
        "max_token",
    ],
)
def test_a_name_that_only_reminds_of_a_secret_is_none(name):
    assert not is_secret_name(name)
    assert hidden({name: "plain"}) == {name: "plain"}


def test_of_an_environment_the_names_stay():
    assert hidden({"env": {"A": "x", "B": None}}) == {"env": {"A": WITHHELD, "B": None}}
    assert hidden({"env_vars": "A=x;B=y", "environment": "main"}) == {"env_vars": WITHHELD, "environment": "main"}
    assert hidden({"env": ["A=x", "B"]}) == {"env": [f"A={WITHHELD}", "B"]}
    assert hidden({"headers": ["A: x"]}) == {"headers": [f"A: {WITHHELD}"]}
    assert hidden({"headers": "A: x"}) == {"headers": WITHHELD}


def test_what_ray_calls_an_environment_is_shown_but_for_the_variables_in_it():
    given = {"runtime_env": {"working_dir": ".", "pip": ["a==1"], "env_vars": {"A": "x"}}}
    shown_of_it = {"working_dir": ".", "pip": ["a==1"], "env_vars": {"A": WITHHELD}}
    assert hidden(given) == {"runtime_env": shown_of_it}
    del given["runtime_env"]["env_vars"]
    assert hidden(given) == given


def test_an_option_and_its_value_go_together():
    given = {"args": ["login", "--password", "pw", "--token", "--quiet", "host"]}
    assert hidden(given) == {"args": ["login", "--password", WITHHELD, "--token", "--quiet", "host"]}
    assert texts(given) == {"pw"}
    assert kept(given) == ({"args": ["login", "--token", "--quiet", "host"]}, ("args.2",))


def test_of_a_url_only_the_secret_part_goes():
    assert shown("at https://me:pw@host:1/v1?a=1&sig=xyz#f") == f"at https://{WITHHELD}@host:1/v1?a=1&sig={WITHHELD}#f"
    assert shown("http://host:80/image@sha256:1f and a@b") == "http://host:80/image@sha256:1f and a@b"
    assert (
        shown("git+ssh://git@host/a.git and https://git@host")
        == f"git+ssh://git@host/a.git and https://{WITHHELD}@host"
    )
    assert shown("ssh://git:pw@host") == f"ssh://{WITHHELD}@host"
    for image in ("docker://python@sha256:1f00ab22", "docker://ubuntu:22.04@sha256:1f00ab22"):
        assert shown(image) == image
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


def test_a_text_of_any_shape_is_shown():
    assert shown("a=" * 5000) == f"a={WITHHELD}"
    assert shown(f"Rules{'=' * 500}") == f"Rules{'=' * 500}"


def test_the_places_of_what_was_withheld_are_found():
    printed = hidden({"token": "t", "list": [{"url": "http://a:b@c"}], "prompt": "say (withheld) twice"})
    assert list(find_withheld(printed)) == ["token", "list.0.url"]
    headers = hidden({"headers": ["A: x"], "command": "curl -H 'Authorization: Basic b' c", "args": ["A='b c'", "-v"]})
    assert list(find_withheld(headers)) == ["headers.0", "command"]


def test_a_variable_is_looked_for_elsewhere_only_where_it_cannot_be_a_word():
    env = {"MODE": "production", "DB_PASSWORD": "production!", "A": "sk-0123456789abcdef", "URL": "http://a:b@c/d"}
    assert texts({"env": env}) == {"production!", "sk-0123456789abcdef", "b"}
    words = (
        "Qwen2.5-7B-Instruct",
        "terminal-bench-2.0",
        "python3.11-nodejs20",
        "2026-01-31T12:00:00",
        "InstructionTuned-v2",
    )
    assert texts({"env": dict(zip("ABCDE", words, strict=True))}) == set()
    keys = (
        "hf_abcdEFGHijkl1234MNOP",
        "123e4567-e89b-12d3-a456-426614174000",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmVk",
    )
    assert texts({"env": dict(zip("ABC", keys, strict=True))}) == set(keys)
    assert texts(
        {"token": "t", "url": f"https://me:pw@host?sig=s&a={MARK}", "args": ["--password=p", "TOKEN='q r'"]}
    ) == {
        "q r",
        "t",
        "pw",
        "s",
        "p",
    }
