"""Creates a run's model client and chooses its parser, from the config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelClient, ModelProvider, ModelSettings
from hermes_core.contracts.task import Task
from hermes_core.discovery import Registry
from hermes_core.nearest import did_you_mean
from hermes_core.specs import ModelSpec, Ref
from hermes_runner.config import RunConfig

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ToolCallParser


def open_model(config: RunConfig, *, api_key: str | None, tasks: Iterable[Task], registry: Registry) -> ModelClient:
    """Create the run's model client; opens no connection."""
    name = _provider_name(config, registry)
    provider = cast("ModelProvider", registry.create("model", name, config.options_of("model", name)))
    options = (
        "mistake_rate",
        "rate_limit_patience",
        "allow_unlisted_model",
        "tokenizer",
        "chat_template_kwargs",
        "allow_branches",
        "logprobs_mode",
        "tool_call_parser",
    )

    def choose(template: str) -> ToolCallParser | None:
        ref = _parser_ref(config, config.model_name or "", template, registry)
        return None if ref is None else cast("ToolCallParser", registry.create(ref.kind, ref.name, ref.options))

    settings = ModelSettings(
        address=config.model,
        model_name=config.model_name or "",
        api_key=api_key,
        timeout=config.model_timeout,
        max_retries=config.model_retries,
        seed=config.seed,
        tasks=tuple(tasks),
        options={**{name: getattr(config, name) for name in options}, "sampling": config.sampling()},
        choose_parser=choose,
    )
    try:
        return provider.client(settings)
    except ConfigError as error:
        raise _with_embedded_models(error, config, registry) from error


def _with_embedded_models(error: ConfigError, config: RunConfig, registry: Registry) -> ConfigError:
    """Return the error, with the embedded models that are installed if the config's model may be one of them."""
    if config.model_protocol != "chat" or not re.fullmatch(r"[\w.-]+", config.model):
        return error
    ambiguous = {conflict.name for conflict in registry.conflicts if conflict.kind == "model"}
    embedded = [name for name in registry.names("model") if name not in ambiguous and is_embedded(name, registry)]
    every = (
        f"embedded models: {', '.join(embedded) or 'none'}; for another one: pip install the package that declares it"
    )
    hint = did_you_mean(config.model, embedded, also=every)
    return ConfigError(error.message, hint=f"{hint}\n    {error.hint}" if error.hint else hint)


def _provider_name(config: RunConfig, registry: Registry) -> str:
    """Return the name of the model's provider: an embedded model itself, else the protocol."""
    is_chat = config.model_protocol == "chat"
    return config.model if is_chat and is_embedded(config.model, registry) else config.model_protocol


def is_embedded(model: str, registry: Registry) -> bool:
    """Return whether a model is embedded: it needs no server and gets the tasks instead."""
    if model not in registry.names("model"):
        return False
    spec = registry.spec("model", model)
    return isinstance(spec, ModelSpec) and spec.embedded


def choose_parser(config: RunConfig, model: ModelClient, registry: Registry) -> Ref | None:
    """Return the config's parser, else the one that a plugin names for the model; raw text without one is refused."""
    template = str(getattr(getattr(model, "tokenizer", None), "chat_template", "") or "")
    return _parser_ref(config, str(model.provenance.get("model_name") or ""), template, registry)


def _parser_ref(config: RunConfig, model_name: str, template: str, registry: Registry) -> Ref | None:
    name = config.tool_call_parser or registry.parser_for(model_name, template)
    if name is not None:
        return Ref(kind="parser", name=name, options=config.tool_call_parser_options)
    if config.tool_call_parser_options:
        raise ConfigError("expected a parser for tool_call_parser_options, got none", hint="name it: --parser NAME")
    if config.model_protocol != "chat":
        raise ConfigError(
            f"expected a parser, as model_protocol {config.model_protocol} returns calls as raw text; got none, and no "
            "plugin names one for this model and chat template",
            hint="add --parser NAME; hermes-core parsers list shows them (pip install hermes-parsers)",
        )
    return None
