"""The list of models a server offers: costs no sampling, and finds a wrong address, key or model name."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.contracts.errors import ModelReplyError, ModelRequestError
from hermes_core.models.http import HttpChannel
from hermes_core.models.refusals import Refusal
from hermes_core.models.replies import decode_json

CHECK_TIMEOUT: Final = 30.0
"""Seconds that one request of a check may take."""


async def check_listed(channel: HttpChannel, url: str, model_name: str) -> None:
    """Raise a `ModelError` if the server refuses, or lists models and not this one."""
    outcome = await channel.exchange("GET", url, min(channel.timeout, CHECK_TIMEOUT))
    if isinstance(outcome, Refusal):
        raise outcome.error()
    if outcome.status in {404, 405, 429, 501}:  # the server is there; it does not list models, or not now
        return
    if outcome.status != 200:
        raise channel.refused(*outcome).error()
    try:
        listed = _listed_models(decode_json(outcome.body))
    except ValueError as error:
        raise channel.unreadable(ModelReplyError("its list of models is not JSON"), outcome).error() from error
    if listed and _plain_name(model_name) not in {_plain_name(name) for name in listed}:
        shown = ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
        raise ModelRequestError(
            f"{channel.address.shown} has no model {model_name!r}; it lists {shown}",
            hint=f"--model-name {listed[0]}",
        )


def _listed_models(data: Any) -> list[str]:
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _plain_name(name: str) -> str:
    """Return a name without what servers add on one side only: Gemini's folder, Ollama's and OpenRouter's tags."""
    return name.removeprefix("models/").partition(":")[0]
