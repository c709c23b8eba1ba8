"""Translate sampling parameters from OpenAI's names to those of a token-level protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.nearest import did_you_mean

_SET_BY_THE_CLIENT: Final = frozenset(
    {"model", "prompt", "messages", "tools", "stream", "n", "logprobs", "top_logprobs", "extra_body", "request_id"}
)


class SamplingParameterError(ConfigError):
    """A sampling parameter cannot be sent; `parameter` is its name."""

    # With defaults, because an error is copied and unpickled by its message alone.
    def __init__(self, message: str, *, parameter: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingNames:
    """The names that one protocol supports: sampling parameters, and fields beside them.

    Both map the name a user writes to the name on the wire.
    """

    protocol: str
    parameters: Mapping[str, str]
    fields: Mapping[str, str] = field(default_factory=dict)

    def translate(self, sampling: Mapping[str, Any], *, max_tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return parameters and fields as sent; raise `SamplingParameterError` for an unsupported name.

        `max_tokens` applies if the sampling has none, because each server has its own default.
        """
        parameters: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        for name, value in with_bound(sampling, max_tokens).items():
            if name in self.parameters:
                parameters[self.parameters[name]] = value
            elif name in self.fields:
                fields[self.fields[name]] = value
            else:
                raise self._refusal(name)
        return parameters, fields

    def _refusal(self, name: str) -> SamplingParameterError:
        if name in _SET_BY_THE_CLIENT:
            return SamplingParameterError(
                f"expected sampling parameters, got {name}, which the client sets itself",
                parameter=name,
                hint=f"remove {name} from the sampling parameters",
            )
        known = sorted({*self.parameters, *self.fields})
        return SamplingParameterError(
            f"expected a sampling parameter that the protocol {self.protocol} supports, got {name!r}",
            parameter=name,
            hint=did_you_mean(name, known, also=f"it supports {', '.join(known)}"),
        )


def with_bound(sampling: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the sampling with exactly one bound, `max_tokens`, which stands for both of OpenAI's names."""
    found = dict(sampling)
    bounds = {value for name in ("max_tokens", "max_completion_tokens") if (value := found.pop(name, None)) is not None}
    if len(bounds) > 1:
        raise ConfigError(
            f"expected one bound of a turn, got max_tokens and max_completion_tokens with {sorted(bounds)}",
            hint="max_tokens alone",
        )
    bound = bounds.pop() if bounds else max_tokens
    if not isinstance(bound, int) or isinstance(bound, bool) or bound < 1:
        raise ConfigError(
            f"expected max_tokens to be a whole number above 0, got {bound!r}", hint=f"max_tokens: {max_tokens}"
        )
    return {**found, "max_tokens": bound}
