"""What is withheld of a configuration: by declaration, by name, in tables of variables and in addresses."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from planted_secrets import LEAVES, MARK, nested_structures, secret_structures
from pydantic import AnyUrl, BaseModel, SecretBytes, SecretStr

from hermes_core.redaction.secrets import (
    WITHHELD,
    comparable_values,
    find_secrets,
    find_withheld,
    is_secret_name,
    quote_value,
    redact,
    redact_address,
    redact_at,
    redact_text,
    strip_secrets,
)


@given(nested_structures(LEAVES | secret_structures()))
def test_a_secret_is_withheld_however_deep_it_lies(value):
    assert MARK not in json.dumps(redact(value))
    assert MARK not in json.dumps(comparable_values(redact(value)))
    assert MARK not in json.dumps(comparable_values(value))
    assert MARK not in json.dumps(strip_secrets({"options": value}))


@given(nested_structures(LEAVES))
def test_what_holds_no_secret_is_shown_as_it_is(value):
    assert redact(value) == value
    assert strip_secrets({"options": value}) == ({"options": value}, ())
    assert find_secrets(value) == frozenset()


@given(nested_structures(LEAVES | secret_structures()))
def test_redacting_what_is_redacted_changes_nothing_more(value):
    assert redact(redact(value)) == redact(value)


@pytest.mark.parametrize(
    "name",
    ["token", "DB_PASSWORD", "apiKey", "x-api-key", "HFToken", "Authorization", "aws_secret_access_key", "passphrase"],
)
def test_a_name_is_secret_by_its_last_words_in_any_spelling(name):
    assert is_secret_name(name)
    assert redact({name: MARK}) == {name: WITHHELD}
    assert redact({name: ["two", 2]}) == {name: WITHHELD}
    assert redact({name: None}) == {name: None}


@pytest.mark.parametrize(
    "name",
    ["api_key_env", "tokenizer", "max_tokens", "token_id", "key", "client_key", "path", "pass_1", "secrets", "equal"],
)
def test_a_name_that_only_reminds_of_a_secret_is_none(name):
    assert not is_secret_name(name)
    assert redact({name: "plain"}) == {name: "plain"}


@pytest.mark.parametrize(
    "text",
    [
        "log in with --password=letmein-now and TOKEN='abcdefgh'",
        "curl -H 'Authorization: Bearer abcdefgh' https://host/v1?api_key=abcdefgh",
        "X-Vault-Token: abcdefgh",
        "hf_abcdEFGHijkl1234MNOP",
    ],
)
def test_nothing_is_guessed_in_a_text(text):
    assert redact({"command": text, "args": text.split()}) == {"command": text, "args": text.split()}
    assert redact_text(text) == text


class Login(BaseModel):
    user: str
    key: SecretStr


def test_what_is_declared_as_a_secret_is_withheld_whatever_its_name_and_length():
    values = {"a": SecretStr("x"), "b": [SecretBytes(b"y")], "c": Login(user="me", key=SecretStr("z"))}
    assert redact(values) == {"a": WITHHELD, "b": [WITHHELD], "c": {"user": "me", "key": WITHHELD}}
    assert find_secrets(values) == {"x", "y", "z"}


def test_of_a_table_of_variables_the_names_stay():
    assert redact({"env": {"A": "x", "B": None, "C": 1}}) == {"env": {"A": WITHHELD, "B": None, "C": WITHHELD}}
    assert redact({"modal_env_vars": "A=x;B=y", "environment": "main"}) == {
        "modal_env_vars": WITHHELD,
        "environment": "main",
    }
    assert redact({"env": ["A=x", "B"], "headers": "A: x"}) == {"env": WITHHELD, "headers": WITHHELD}


def test_what_ray_calls_an_environment_is_shown_but_for_the_variables_in_it():
    given = {"runtime_env": {"working_dir": ".", "pip": ["a==1"], "env_vars": {"A": "x"}}}
    shown = {"working_dir": ".", "pip": ["a==1"], "env_vars": {"A": WITHHELD}}
    assert redact(given) == {"runtime_env": shown}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("at https://me:pw@host:1/v1?a=1&sig=xyz#f", f"at https://{WITHHELD}@host:1/v1?a=1&sig=xyz#f"),
        ("https://git@host", f"https://{WITHHELD}@host"),
        ("redis://:p/w@host", f"redis://{WITHHELD}@host"),
        ("ssh://git:pw@host", f"ssh://{WITHHELD}@host"),
        ("http://a:b@c,http://d:e@f", f"http://{WITHHELD}@c,http://{WITHHELD}@f"),
        ('{"a":"http://me:pw@host","b":"c@d"}', f'{{"a":"http://{WITHHELD}@host","b":"c@d"}}'),
    ],
)
def test_of_an_address_user_and_password_go(text, said):
    assert redact_text(text) == said
    assert redact({"where": [text]}) == {"where": [said]}


@pytest.mark.parametrize(
    "text",
    [
        "http://host:80/image@sha256:1f and a@b",
        "http://[::1]:80/users@scope",
        "http://host:80?mail=a@b",
        '["http://host","c@d"]',
        "git+ssh://git@host/a.git",
        "docker://python@sha256:1f00ab22",
        "docker://ubuntu:22.04@sha256:1f00ab22",
        "me@host",
    ],
)
def test_what_is_no_user_of_an_address_stays(text):
    assert redact_text(text) == text


def test_an_address_without_a_scheme_loses_all_before_its_last_at():
    assert redact_address("tcp://me:p#w@host:1") == f"tcp://{WITHHELD}@host:1"
    assert redact_address("me:pw@host") == f"{WITHHELD}@host"
    assert redact_address("http://host:1") == "http://host:1"


@pytest.mark.parametrize("part", ["://", "://a", "://a:b", "://a:", "@", "://@sha1:0", "a@:", "://1", "\n://:'"])
def test_a_hostile_text_of_a_megabyte_is_read_once(part):
    """A third of a second of computing where the work is linear, a quarter of an hour where it is quadratic."""
    text = f"http://{part * (1_000_000 // len(part))}"
    start = time.process_time()
    redact_text(text)
    find_secrets({"said": text})
    assert time.process_time() - start < 5


def test_what_is_stripped_can_be_used_again_and_says_what_it_lacks():
    values = {
        "address": "https://me:pw@host/v1",
        "token": "t",
        "env": {"A": "x"},
        "auth": {"username": "me", "password": "pw"},
        "doors": [{"key": SecretStr("k"), "name": "front"}, SecretStr("k")],
    }
    public, withheld = strip_secrets(values)
    assert public == {
        "address": "https://host/v1",
        "env": {},
        "auth": {"username": "me"},
        "doors": [{"name": "front"}],
    }
    assert withheld == ("address", "token", "auth.password", "doors.0.key", "doors.1")


def test_two_settings_that_differ_in_secrets_only_are_the_same_ones():
    def settings(token, **env):
        return redact({"token": token, "url": f"http://a:{token}@host", "env": env} if token else {"env": env})

    assert comparable_values(settings("one", A="x")) == comparable_values(settings("two", A="y"))
    assert comparable_values(settings("one", A="x")) != comparable_values(settings("one", B="x"))
    assert comparable_values(settings("one", A="x")) == comparable_values(settings(None, A="x")) | {
        "url": "http://host"
    }
    assert comparable_values({"backends": {"nomad": {"token": WITHHELD}}}) == comparable_values({"backends": {}})
    plain = comparable_values({"options": {"image": "a", "env": {"A": "x"}}})
    assert plain == comparable_values(redact({"options": {"image": "a", "token": "new", "env": {"A": "y"}}}))
    assert plain == comparable_values({"options": {"image": "a", "env": {"A": "x", "HF_TOKEN": "t"}}})
    assert plain != comparable_values({"options": {"image": "b", "env": {"A": "x"}}})


def test_the_places_of_what_was_withheld_are_found():
    values = {"token": "t", "list": [{"url": "http://a:b@c"}], "env": {"A": "x"}, "prompt": "say (withheld) twice"}
    assert list(find_withheld(redact(values))) == ["token", "list.0.url", "env.A"]


def test_a_wrong_value_is_quoted_unless_its_place_is_a_secret():
    assert redact_at({"A": "x"}, ("sandbox", "env")) == {"A": WITHHELD}
    assert redact_at(["x"], ("sandbox", "env", "A")) == WITHHELD
    assert redact_at("http://a:b@c", ("model", 0)) == f"http://{WITHHELD}@c"
    assert quote_value("x", ("token",)) == repr(WITHHELD)
    assert quote_value("x", ("group_size",)) == "'x'"
    assert quote_value({"token": "x"}, ()) == f"{{'token': {WITHHELD!r}}}"


def test_the_secrets_of_values_are_found_for_those_to_whom_they_come_back():
    values = {"token": ["t", "u"], "url": "https://me:pw@host and http://only@host", "env": {"MODE": "production"}}
    assert find_secrets({**values, "headers": "A: b", "command": "--password=p"}) == {
        "t",
        "u",
        "pw",
        "only",
        "production",
        "b",
    }


def test_addresses_of_pydantics_and_those_that_are_keys_lose_their_login_too():
    address = "https://bob:hunter2hunter2@host.example/x"
    for values in ({"address": AnyUrl(address)}, {address: 1}, {"all": [AnyUrl(address)]}):
        assert "hunter2hunter2" not in str(redact(values))
    assert find_secrets({"address": AnyUrl(address)}) == {"hunter2hunter2"}
    assert strip_secrets({"address": AnyUrl(address)}) == ({"address": "https://host.example/x"}, ("address",))
