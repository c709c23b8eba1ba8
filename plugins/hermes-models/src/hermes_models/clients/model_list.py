"""The list of models a server offers: costs no sampling, and finds a wrong address, key or model name."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError, ModelRequestError
from hermes_models.clients.http import HttpChannel
from hermes_models.clients.http_errors import Refusal
from hermes_models.clients.replies import decode_json

CHECK_TIMEOUT: Final = 30.0
"""Seconds that one request of a check may take."""
UNNAMED: Final = "default"
"""What the model is called to a server that has no list of models, by a user who names none."""


async def check_listed(channel: HttpChannel, url: str, model_name: str) -> None:
    """Raise a `ModelError` if the server refuses, or lists models and not this one."""
    listed = await _listed(channel, url)
    if listed and _plain_name(model_name) not in {_plain_name(name) for name in listed}:
        raise ModelRequestError(
            f"{channel.address.shown} has no model {model_name!r}; it lists {_shown(listed)}",
            hint=f"--model-name {listed[0]}",
        )


async def only_listed(channel: HttpChannel, url: str) -> str:
    """Return the name of the one model that a server lists, `UNNAMED` if it lists none; a `ModelError` if several."""
    listed = await _listed(channel, url)
    if len(listed) > 1:
        raise ModelRequestError(
            f"{channel.address.shown}: the name of one model was wanted; it lists {_shown(listed)}",
            hint=f"--model-name {listed[0]}",
        )
    return listed[0] if listed else UNNAMED


async def _listed(channel: HttpChannel, url: str) -> list[str]:
    """Return the names of a server's models; none where it is there and does not list them, or not now."""
    outcome = await channel.exchange("GET", url, min(channel.timeout, CHECK_TIMEOUT))
    if isinstance(outcome, Refusal):
        raise outcome.error()
    if outcome.status in {404, 405, 429, 501}:
        return []
    if outcome.status != 200:
        raise channel.refused(*outcome).error()
    try:
        return _listed_models(decode_json(outcome.body))
    except ValueError as error:
        raise channel.unreadable(ModelReplyError("its list of models is not JSON"), outcome).error() from error


def _shown(listed: list[str]) -> str:
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")


def _listed_models(data: Any) -> list[str]:
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _plain_name(name: str) -> str:
    """Return a name without what servers add on one side only: Gemini's folder, Ollama's and OpenRouter's tags."""
    return name.removeprefix("models/").partition(":")[0]
