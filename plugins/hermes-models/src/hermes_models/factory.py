"""Create a model client from the value of `--model`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.task import Task

EMBEDDED = ("oracle", "nop")
"""The models that need no server."""


def create_model(
    model: str,
    *,
    model_name: str | None = None,
    api_key: str | None = None,
    tasks: Iterable[Task] = (),
    mistake_rate: float = 0.25,
    seed: int = 0,
    timeout: float = 600.0,
    max_retries: int = 4,
    rate_limit_patience: float = 900.0,
    extra_body: Mapping[str, Any] | None = None,
    raw_text_sampling: Mapping[str, Any] | None = None,
    allow_unlisted_model: bool = False,
) -> ModelClient:
    """Create a client for `oracle`, `nop` or the base URL of an OpenAI-compatible server, without connecting."""
    if model == "oracle":
        from hermes_models.embedded.oracle import OracleModel

        return OracleModel(tasks, mistake_rate=mistake_rate, seed=seed)
    if model == "nop":
        from hermes_models.embedded.nop import NopModel

        return NopModel()
    if not model.strip().lower().startswith(("http://", "https://")):
        raise _unknown_model(model, model_name)
    from hermes_models.clients.openai import OpenAIChatClient

    return OpenAIChatClient(
        base_url=model,
        model_name=model_name or "",
        api_key=api_key,
        timeout=timeout,
        max_retries=max_retries,
        rate_limit_patience=rate_limit_patience,
        extra_body=extra_body,
        raw_text_sampling=raw_text_sampling,
        allow_unlisted_model=allow_unlisted_model,
    )


def _unknown_model(model: str, model_name: str | None) -> ConfigError:
    """Return the error for an unknown model; usual mistakes: a bare model name, an address without `http://`."""
    before, _, place = model.rpartition("@")
    if ":" in before:  # a mistyped URL may still contain a password
        scheme, separator, _ = before.partition("//")
        model = f"{scheme + separator if separator else ''}{place}"
    wanted = f"expected {', '.join(EMBEDDED)} or the URL of an OpenAI-compatible server as the model, got {model!r}"
    name = model_name or "NAME"
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?|localhost(/.*)?", model):
        path = "" if "/" in model else "/v1"
        return ConfigError(wanted, hint=f"--model http://{model}{path} --model-name {name}")
    return ConfigError(wanted, hint=f"--model http://HOST:PORT/v1 --model-name {model_name or model or 'NAME'}")
