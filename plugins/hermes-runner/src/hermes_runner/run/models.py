"""The model of a run, from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry
from hermes_core.specs import Ref
from hermes_models.factory import create_model
from hermes_runner.config import RunConfig


def open_model(config: RunConfig, *, api_key: str | None, tasks: Iterable[Task]) -> ModelClient:
    """Make the run's model client; opens no connection."""
    if config.model_protocol != "chat":
        return _token_model(config, api_key)
    return create_model(
        config.model,
        model_name=config.model_name,
        api_key=api_key,
        tasks=tasks,
        mistake_rate=config.mistake_rate,
        seed=config.seed,
        timeout=config.model_timeout,
        max_retries=config.model_retries,
    )


def choose_parser(config: RunConfig, model: ModelClient, registry: Registry) -> Ref | None:
    """Return the run's parser: the config's, else what a plugin says for the model; raw text without one is refused."""
    template = str(getattr(getattr(model, "tokenizer", None), "chat_template", "") or "")
    name = config.tool_call_parser or registry.parser_for(str(model.provenance.get("model_name") or ""), template)
    if name is not None:
        return Ref(kind="parser", name=name, options=config.tool_call_parser_options)
    if config.tool_call_parser_options:
        raise ConfigError("there are options for a parser, but no parser", hint="name it: --parser NAME")
    if config.model_protocol != "chat":
        raise ConfigError(
            f"model_protocol {config.model_protocol} brings raw text, and a parser was wanted to read calls in it: "
            "none is named, and no plugin knows one for this model and chat template",
            hint="--parser NAME; hermes-core parsers list shows them (pip install hermes-parsers)",
        )
    return None


def _token_model(config: RunConfig, api_key: str | None) -> ModelClient:
    from hermes_models.factory import create_generate_client
    from hermes_tokens.clients.token_model import TokenModel
    from hermes_tokens.tokenizer import ChatTokenizer

    tokenizer = ChatTokenizer.load(Path(str(config.tokenizer)))
    client = create_generate_client(
        config.model_protocol,
        config.model,
        model_name=config.model_name or "",
        api_key=api_key,
        timeout=config.model_timeout,
        max_retries=config.model_retries,
        logprobs_mode=config.logprobs_mode,
    )
    return TokenModel(
        client, tokenizer, template_kwargs=config.chat_template_kwargs, allow_branches=config.allow_branches
    )
