"""The values of --model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelClient
from hermes_models.factory import create_model


@pytest.mark.parametrize(
    ("model", "name"), [("oracle", None), ("nop", None), ("http://127.0.0.1:1/v1", "m"), ("HTTPS://host/v1", "m")]
)
async def test_embedded_names_and_urls_make_clients(model, name):
    client = create_model(model, model_name=name)
    assert isinstance(client, ModelClient)
    assert client.provenance["model_name"] == (name or model)
    await client.aclose()


async def test_the_options_of_the_oracle_are_recorded():
    client = create_model("oracle", mistake_rate=0.5, seed=7)
    assert client.provenance == {"protocol": "embedded", "model_name": "oracle", "mistake_rate": 0.5, "seed": 7}


@pytest.mark.parametrize(
    ("model", "name", "hint"),
    [
        ("gpt-4", None, "--model http://HOST:PORT/v1 --model-name gpt-4"),
        ("Qwen/Qwen3-8B", None, "--model http://HOST:PORT/v1 --model-name Qwen/Qwen3-8B"),
        ("gpt-4", "gpt-4o", "--model http://HOST:PORT/v1 --model-name gpt-4o"),
        ("localhost:8000", "m", "--model http://localhost:8000/v1 --model-name m"),
        ("10.0.0.7:8000/v1", None, "--model http://10.0.0.7:8000/v1 --model-name NAME"),
        ("", None, "--model http://HOST:PORT/v1"),
        ("oracel", None, "--model http://HOST:PORT/v1"),
        ("http:///v1", "m", "--model http://HOST:PORT/v1"),
    ],
)
def test_anything_else_is_refused_with_what_to_type(model, name, hint):
    with pytest.raises(ConfigError) as caught:
        create_model(model, model_name=name)
    assert hint in str(caught.value)


@pytest.mark.parametrize("address", ["htp://ann:secret@host/v1", "ann:secret@host/v1", "htp://ann:sec/secret@host"])
def test_a_password_in_a_mistyped_url_is_not_shown(address):
    with pytest.raises(ConfigError) as caught:
        create_model(address)
    assert "host" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_embedded_models_and_the_client_do_not_import_the_http_library():
    """It costs 0.2 s; it is imported when the first request is sent."""
    code = (
        "import sys\n"
        "from hermes_models.factory import create_model\n"
        "create_model('oracle'); create_model('nop'); create_model('http://h/v1', model_name='m')\n"
        "sys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
