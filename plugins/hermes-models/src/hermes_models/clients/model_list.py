"""Check a server by its list of models: finds a wrong address, key or model name without sampling."""

from __future__ import annotations

import logging
from typing import Any, Final

from hermes_core.contracts.errors import ModelAuthError, ModelReplyError, ModelRequestError
from hermes_models.clients.http import HttpAnswer, HttpChannel
from hermes_models.clients.http_errors import RequestRefusal
from hermes_models.clients.replies import decode_json

CHECK_TIMEOUT: Final = 30.0
"""Timeout in seconds of one request of a check."""
UNNAMED: Final = "default"
"""The model name sent to a server without a list of models when the user gives none."""


async def check_listed(channel: HttpChannel, url: str, model_name: str, *, allow_unlisted: bool = False) -> None:
    """Raise a `ModelError` if the server refuses or lists other models only; warn if it lists none.

    With `allow_unlisted`, a list without the model is only a warning.
    """
    listed = await _find_names(channel, url)
    if not isinstance(listed, list):
        _warn(listed, model_name)
    elif _plain_name(model_name) not in {_plain_name(name) for name in listed}:
        _refuse(channel.address.shown, model_name, listed, allow_unlisted=allow_unlisted)


def _refuse(shown: str, model_name: str, listed: list[str], *, allow_unlisted: bool) -> None:
    if allow_unlisted:
        text = "%s does not list the model %r; the run requests it anyway"
        logging.getLogger(__name__).warning(text, shown, model_name)
        return
    raise ModelRequestError(
        f"expected {shown} to list the model {model_name!r}, got {_short_list(listed)}",
        hint=f"--model-name {listed[0]}; or --allow-unlisted-model if the server does not list all its models",
    )


async def only_listed(channel: HttpChannel, url: str) -> str:
    """Return the only model that a server lists, `UNNAMED` if it lists none; raise `ModelError` for several."""
    listed = await _find_names(channel, url)
    if not isinstance(listed, list):
        _warn(listed, UNNAMED)
        return UNNAMED
    if len(listed) > 1:
        raise ModelRequestError(
            f"expected {channel.address.shown} to list one model, got {_short_list(listed)}",
            hint=f"--model-name {listed[0]}",
        )
    return listed[0]


async def _find_names(channel: HttpChannel, url: str) -> list[str] | str:
    """Return the names of a server's models, or a description of what it answered instead.

    Working servers may have no list, or one that fails (`transformers serve` answers 500). Only failures that the
    run's own requests would hit too raise an error: no server, a refused key, a moved server.
    """
    seconds = min(channel.timeout, CHECK_TIMEOUT)
    outcome = await channel.exchange("GET", url, seconds)
    if isinstance(outcome, RequestRefusal):
        if not outcome.unanswered:
            raise outcome.error()
        return outcome.message
    if outcome.status != 200:
        refusal = channel.refusal(*outcome)
        if issubclass(refusal.kind, ModelAuthError) or 300 <= outcome.status < 400:
            raise refusal.error()
        return _words(refusal)
    return _names_in(channel, outcome)


def _names_in(channel: HttpChannel, answer: HttpAnswer) -> list[str] | str:
    try:
        names = _listed_models(decode_json(answer.body))
    except ValueError:
        return _words(channel.unreadable(ModelReplyError("its list of models is not JSON"), answer))
    if names is None:
        return _words(channel.unreadable(ModelReplyError("it is not a list of models"), answer))
    return names or f"{channel.address.shown} answered with an empty list"


def _words(refusal: RequestRefusal) -> str:
    return refusal.message + (f" ({refusal.hint})" if refusal.hint else "")


def _warn(found: str, model_name: str) -> None:
    logging.getLogger(__name__).warning(
        "Expected a list of models, but %s; the run continues with the model %r: --model-name NAME chooses another",
        found,
        model_name,
    )


def _short_list(listed: list[str]) -> str:
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")


def _listed_models(data: Any) -> list[str] | None:
    """Return the names in a list of models, or None if the data is not one."""
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    names = [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return names if names or not entries else None


def _plain_name(name: str) -> str:
    """Return a name without what some servers add: Gemini's folder, Ollama's and OpenRouter's tags."""
    return name.removeprefix("models/").partition(":")[0]
