"""The parts of a configuration in every model request: sampling parameters and chat template variables.

A chat server gets everything unchanged. A token-level server gets what its protocol supports; the chat template is
applied here, so reasoning is controlled by the template's own variables. Unsupported fields are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hermes_atropos.compat import is_reasoning, reasoning_body, warn_of_budget
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_core.contracts.errors import ConfigError

if TYPE_CHECKING:
    from hermes_tokens import ChatTokenizer, GenerateClient

logger = logging.getLogger(__name__)

_SWITCHES: Final = ("enable_thinking", "thinking")
"""Variables by which chat templates switch reasoning on and off."""
_TEMPLATE_KWARGS: Final = "chat_template_kwargs"
_BUDGET: Final = "thinking_token_budget"
_REASONING: Final = frozenset({"reasoning", "reasoning_effort", _BUDGET})
_CONSTRAINTS: Final = {
    "vllm": {
        "guided_json": "structured_outputs: {json: SCHEMA}",
        "guided_regex": "structured_outputs: {regex: PATTERN}",
        "guided_choice": "structured_outputs: {choice: [TEXT, …]}",
        "guided_grammar": "structured_outputs: {grammar: GRAMMAR}",
        "response_format": "structured_outputs: {json: SCHEMA}, or {json_object: true}",
    },
    "sglang": {
        "guided_json": "json_schema: SCHEMA_AS_TEXT",
        "guided_regex": "regex: PATTERN",
        "guided_choice": "regex: ONE|OTHER",
        "guided_grammar": "ebnf: GRAMMAR",
        "response_format": "json_schema: SCHEMA_AS_TEXT",
    },
}
"""Constraints in the chat servers' form, with the equivalent for token protocols."""


def sampling_of(config: HermesAgentEnvConfig, servers: Sequence[Any], *, is_checked: bool = True) -> dict[str, Any]:
    """Return the fields of every model request; raise a `ConfigError` for an unsupported one.

    Not checked if an environment's own model replaces the servers.
    """
    fields: dict[str, Any] = {"temperature": config.agent_temperature, "max_tokens": config.max_token_length}
    protocol = protocol_of(config, servers)
    if protocol is None:
        if servers:
            warn_of_budget(config, servers[0].base_url)
        body = {**reasoning_fields(config, servers), **(config.extra_body or {})}
        if config.chat_template_kwargs:
            body[_TEMPLATE_KWARGS] = {**_within(body), **config.chat_template_kwargs}
        return fields | body | config.sampling
    fields |= reasoning_fields(config, servers)
    extra = {name: value for name, value in (config.extra_body or {}).items() if name != _TEMPLATE_KWARGS}
    sampling = fields | extra | config.sampling
    if is_checked:
        check_sampling_of(protocol, sampling)
    return sampling


def reasoning_fields(config: HermesAgentEnvConfig, servers: Sequence[Any]) -> dict[str, Any]:
    """Return the reasoning fields of every request, including requests of an environment's own code."""
    protocol = protocol_of(config, servers)
    if protocol is None:
        return reasoning_body(config, servers[0].base_url) if servers else {}
    budget = config.max_reasoning_tokens
    return {_BUDGET: budget} if protocol == "vllm" and budget is not None else {}


def with_reasoning(own: Mapping[str, Any], reasoning: Mapping[str, Any]) -> dict[str, Any]:
    """Add the configured reasoning fields to a request, unless it has any of its own."""
    return dict(own) if _REASONING & own.keys() else {**reasoning, **own}


def protocol_of(config: HermesAgentEnvConfig, servers: Sequence[Any]) -> str | None:
    """Return the token protocol, or None for chat servers; type vllm may still be Atropos' own server."""
    if not servers or servers[0].server_type == "openai":
        return None
    if config.generate_protocol != "auto":
        return config.generate_protocol
    return "sglang" if servers[0].server_type == "sglang" else "vllm"


def check_sampling_of(protocol: str, sampling: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` for a parameter that the protocol does not support; it lists the supported ones."""
    from hermes_tokens import SamplingParameterError

    try:
        # A client checks the common fields when it is created.
        new_client(protocol, "http://127.0.0.1", extra_body=sampling)
    except ConfigError as error:
        parameter = error.parameter if isinstance(error, SamplingParameterError) else None
        source = "max_reasoning_tokens" if parameter == _BUDGET else "extra_body or sampling"
        form = _CONSTRAINTS.get(protocol, {}).get(parameter or "")
        hint = f"{error.hint}; servers of type openai get every field"
        raise ConfigError(f"{source}: {error.message}", hint=f"write {form}; {hint}" if form else hint) from error


def new_client(protocol: str, base_url: str, **options: Any) -> GenerateClient:
    """Create a client of a token protocol, without connecting."""
    from hermes_tokens import create_generate_client

    return create_generate_client(protocol, base_url, **options)


def template_kwargs_of(
    config: HermesAgentEnvConfig, servers: Sequence[Any], tokenizer: ChatTokenizer
) -> dict[str, Any]:
    """Return the variables for a tokenizer's chat template; raise a `ConfigError` for an unsupported setting.

    `chat_template_kwargs` in `extra_body` is the chat servers' form; the field of that name wins.
    """
    given = {**_within(config.extra_body), **config.chat_template_kwargs}
    wanted: dict[str, Any] = {}
    if is_reasoning(config):
        wanted = _reasoning_kwargs(config, protocol_of(config, servers), tokenizer.template_variables)
    for name, value in wanted.items():
        if name in given and given[name] != value:
            raise ConfigError(
                f"expected {_TEMPLATE_KWARGS}.{name} {value!r} as in the reasoning settings, got {given[name]!r}",
                hint="remove one of the two",
            )
    return {**wanted, **given}


def _within(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (body or {}).get(_TEMPLATE_KWARGS) or {}


def _reasoning_kwargs(config: HermesAgentEnvConfig, protocol: str | None, variables: Collection[str]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    switch = next((name for name in _SWITCHES if name in variables), None)
    effort, budget = config.reasoning_effort, config.max_reasoning_tokens
    if effort is not None and "reasoning_effort" in variables:
        wanted["reasoning_effort"] = effort
    elif effort is not None and effort != "none" and (switch is not None or config.custom_thinking_prompt):
        logger.warning(
            "reasoning_effort %r only switches thinking on: the chat template of %s has no variable for the effort",
            effort,
            config.tokenizer_name,
        )
    elif effort is not None and switch is None:
        raise _no_place("reasoning_effort", config, "reasoning_effort")
    if budget is not None and "thinking_budget" in variables:
        wanted["thinking_budget"] = budget
    elif budget is not None and protocol != "vllm":
        raise _no_place("max_reasoning_tokens", config, "thinking_budget", "set server_type: vllm")
    if switch is not None:
        return {**wanted, switch: effort != "none"}
    if "reasoning_effort" in variables:
        return {"reasoning_effort": "medium", **wanted}
    if config.thinking_mode and not config.custom_thinking_prompt:
        raise _no_place("thinking_mode", config, "enable_thinking, thinking", "set custom_thinking_prompt")
    return wanted


def _no_place(field: str, config: HermesAgentEnvConfig, names: str, *ways: str) -> ConfigError:
    found = config.tokenizer_name
    hint = ", ".join([*ways, "use a model with a chat template that reads it, or servers of type openai"])
    return ConfigError(f"{field}: the chat template of {found} reads no variable for it ({names})", hint=hint)
