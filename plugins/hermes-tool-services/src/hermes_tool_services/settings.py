"""Settings of the services: command-line options and hermes-agent's environment variables, read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from hermes_core.cli import json_object
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.nearest import did_you_mean, nearest_names
from hermes_core.redaction import quote_value, validation_message
from hermes_core.specs import Ref
from hermes_tool_services.executor.config import ToolExecutorConfig

T = TypeVar("T")
PREFIX: Final = "TOOL_EXECUTOR_"
DEFAULT_BACKEND: Final = "local"
_SPEC: Final = TypeAdapter(SandboxSpec)
_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _flag(text: str) -> bool:
    if text.strip().lower() not in _WORDS:
        raise ValueError(text)
    return _WORDS[text.strip().lower()]


Read = Callable[[str], Any]
_READS: Final[Mapping[Read, str]] = {int: "a whole number", float: "a number", _flag: "true or false"}
_NOMAD: Final[Mapping[str, tuple[str, Read]]] = {
    "NOMAD_ADDRESS": ("nomad_address", str),
    "JOB_ID": ("sandbox_job_id", str),
    "SLOTS": ("slots_per_container", int),
    "MIN_CONTAINERS": ("min_containers", int),
    "MAX_CONTAINERS": ("max_containers", int),
    "PRIVILEGED": ("privileged", _flag),
    "ACQUIRE_TIMEOUT_S": ("acquire_timeout_s", float),
    "PURGE_JOB_ON_SHUTDOWN": ("purge_job_on_shutdown", _flag),
}
_CONFIG: Final[Mapping[str, tuple[str, Read]]] = {
    "BATCH_WINDOW_MS": ("batch_window_ms", int),
    "MAX_BATCH_SIZE": ("max_batch_size", int),
    "ALLOW_NETWORK": ("allow_network", _flag),
    "REQUIRE_SANDBOX": ("require_sandbox", _flag),
    "REQUIRE_STATEFUL_SANDBOX": ("require_stateful_sandbox", _flag),
    "TOOL_SERVER_URL": ("tool_server_url", str),
    "TOOL_SERVER_TOKEN": ("tool_server_token", str),
}
_OWN: Final = ("IMAGE", "TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """The settings of the tool executor's service."""

    backend: Ref
    config: ToolExecutorConfig = field(default_factory=ToolExecutorConfig)
    spec: SandboxSpec = field(default_factory=SandboxSpec)
    token: str | None = None


def executor_settings(
    environ: Mapping[str, str],
    *,
    backend: str | None = None,
    backend_options: str = "{}",
    sandbox: str = "{}",
    config: Mapping[str, Any] | None = None,
) -> ExecutorSettings:
    """Read the variables `TOOL_EXECUTOR_*` and the command line.

    Variables about a pool of containers select backend `nomad`. The command line wins over the environment, but another
    backend on it together with such a variable is an error.

    Raises:
        ConfigError: A variable is unknown or not valid, or two of them contradict each other.
    """
    given = {name.removeprefix(PREFIX): text for name, text in environ.items() if name.startswith(PREFIX) and text}
    _refuse_unknown(given)
    pool = _read_settings(given, _NOMAD)
    name = _backend_name(backend, [key for key in _NOMAD if key in given])
    options = {**pool, **json_object("--backend-options", backend_options)}
    fields = json_object("--sandbox", sandbox)
    if "IMAGE" in given:
        target, key = (options, "sandbox_image") if name == "nomad" else (fields, "image")
        target.setdefault(key, given["IMAGE"])
    values = {**_read_settings(given, _CONFIG), **(config or {})}
    return ExecutorSettings(
        backend=Ref(kind="backend", name=name, options=options),
        config=_validate(lambda: ToolExecutorConfig(**values), "the executor's config"),
        spec=_validate(lambda: _SPEC.validate_python(_check_keys(fields)), "--sandbox"),
        token=given.get("TOKEN", "").strip() or None,
    )


def positive(environ: Mapping[str, str], variable: str, default: int) -> int:
    """Return a variable's value as a whole number above 0, or the default if it is not set."""
    text = environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"expected a whole number above 0 in {variable}, got {text!r}")
    return int(text)


def _backend_name(asked: str | None, of_nomad: list[str]) -> str:
    if not of_nomad:
        return asked or DEFAULT_BACKEND
    if asked not in {None, "nomad"}:
        raise ConfigError(
            f"--backend {asked} and {PREFIX}{of_nomad[0]}, which is for backend nomad, contradict each other",
            hint=f"unset {PREFIX}{of_nomad[0]}, or remove --backend",
        )
    return "nomad"


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = [*_NOMAD, *_CONFIG, *_OWN]
    for name in given:
        if name not in known:
            near = nearest_names(name, known)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"known: {', '.join(PREFIX + key for key in known)}"
            raise ConfigError(f"there is no variable {PREFIX}{name}", hint=hint)


def _read_settings(given: Mapping[str, str], table: Mapping[str, tuple[str, Read]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, (key, read) in table.items():
        if name in given:
            try:
                values[key] = read(given[name])
            except ValueError as error:
                raise ConfigError(f"{PREFIX}{name}: expected {_READS[read]}, got {given[name]!r}") from error
    return values


def _check_keys(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    known = set(SandboxSpec.__dataclass_fields__) - {"rollout_id"}
    for key in fields:
        if key not in known:
            hint = did_you_mean(key, known, otherwise=f"known keys: {', '.join(sorted(known))}")
            raise ConfigError(f"--sandbox has no key {key!r}", hint=hint)
    return fields


def _validate(make: Callable[[], T], what: str) -> T:
    try:
        return make()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        message = validation_message(problem, quote_value(problem["input"], problem["loc"]))
        raise ConfigError(f"{what}: {where}: {message}") from None
