"""Every backend and engine that is installed: no secret among its options reaches a lease, a summary or an error."""

from __future__ import annotations

import json
import re
import traceback
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainValidator, Secret, SecretBytes, SecretStr
from workspace import ROOT

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import OptionSchema, PluginSettings, load_plugins, mark_secrets
from hermes_core.redaction import find_secrets, redact
from hermes_core.redaction.secrets import ENVIRONMENT_NAMES, SECRET_NAMES
from hermes_sandbox.leases.book import public_options

MARK = "m4rk3r-m4rk3r"
REGISTRY = load_plugins(PluginSettings(), environ={})
COMPONENTS = [(kind, name) for kind in ("backend", "engine") for name in REGISTRY.names(kind)]
COMPONENTS.remove(("engine", "local"))  # which has no options
GIVEN: dict[str, dict[str, Any]] = {
    "docker": {"docker_host": f"tcp://me:{MARK}@host:1"},
    "nomad": {"nomad_address": f"https://me:{MARK}@host", "docker_config": {"auth": {"password": MARK}}},
    "modal": {"server_url": f"https://me:{MARK}@host", "token_id": "ak-1", "env_vars": f"A={MARK};B={MARK}"},
    "ssh": {"host": "host", "jump": [{"host": "near", "password": MARK, "passphrase": MARK}]},
    "ray": {"runtime_env": {"env_vars": {"A": MARK}, "pip": [f"git+https://me:{MARK}@host/own.git"]}},
}


def options_of(kind, name):
    """Return a component's model and options of it with the mark wherever a secret can be."""
    model = REGISTRY.load(kind, name).Options
    options = {key: value for key, value in GIVEN.get(name, {}).items() if key in model.model_fields}
    for field, info in model.model_fields.items():
        if re.search("SecretStr|SecretBytes", str(info.annotation)):
            options[field] = MARK
        elif field in {"env", "env_vars"} and field not in options:
            options[field] = {"A": MARK}
    if name == "pool":
        members = [{"backend": other, "options": options_of("backend", other)[1]} for other in GIVEN if other != "ray"]
        options["backends"] = members
    return model, options


def reveal(value):
    """Return a value with its secrets in plain, to see that they are there."""
    if isinstance(value, SecretStr | SecretBytes):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    return [reveal(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_a_lease_or_a_record_of_options_holds_no_secret_of_them(kind, name):
    model, options = options_of(kind, name)
    made = model.model_validate(options)
    kept, _ = public_options(made)
    assert MARK not in json.dumps(kept)
    assert MARK not in json.dumps(redact(mark_secrets(REGISTRY, kind, name, options)))
    assert MARK not in json.dumps(redact(mark_secrets(None, kind, name, options)))
    if options:
        assert MARK in json.dumps(reveal(made.model_dump()), default=str)
    # What collects what was left must be able to take them as they are.
    if name != "pool":
        model.model_validate({key: value for key, value in kept.items() if key != "token_id"})


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_what_is_wrong_with_options_is_said_without_their_secrets(kind, name):
    model, options = options_of(kind, name)
    numbers = [field for field, info in model.model_fields.items() if info.annotation in {float, int}]
    wrong = [{**options, field: "many"} for field in numbers[:1]]
    wrong += [{**options, field: [value]} for field, value in options.items()]
    for given in wrong:
        with pytest.raises(HermesError) as caught:
            REGISTRY.create(kind, name, given)
        assert MARK not in "".join(traceback.format_exception(caught.value))


def test_the_documentation_lists_what_is_secret_by_its_name():
    text = (ROOT / "hermes_core" / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Secrets in a config")[2].partition("\n## ")[0]
    tables, names = section.partition("- **Tables")[2].partition("- **Names")[::2]
    listed = [set(re.findall(r"`(\w+)`", part.partition(end)[0])) for part, end in ((tables, ";"), (names, "spelling"))]
    assert listed == [set(ENVIRONMENT_NAMES), set(SECRET_NAMES)]


class Hidden(BaseModel):
    """Secrets that pydantic's schema says nothing of."""

    pin: Annotated[SecretStr, PlainValidator(SecretStr)]
    seed: Secret[str] | None = None
    other: SecretStr = Field(alias="otherPin")
    plain: str = ""


def test_a_declared_secret_is_one_whatever_its_validator_says_of_it():
    found = OptionSchema(Hidden).mark({"pin": MARK, "seed": MARK, "otherPin": MARK, "plain": "seen"})
    assert {name for name, value in found.items() if isinstance(value, SecretStr)} == {"pin", "seed", "otherPin"}


def test_secrets_of_options_that_cannot_be_read_are_found_one_by_one():
    broken = {"min_hosts": 9, "max_hosts": 1, "members": [{"backend": "ssh", "options": {"password": MARK}}]}
    assert MARK in find_secrets(mark_secrets(REGISTRY, "backend", "pool", broken))
