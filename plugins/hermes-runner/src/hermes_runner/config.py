"""The configuration of a run, as given by `run.yaml` and the flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.sandbox import RunBackends, SandboxSpec
from hermes_core.discovery import OptionSchema, PluginSettings
from hermes_core.nearest import did_you_mean
from hermes_core.redaction import WITHHELD, find_withheld, quote_value, validation_message, yaml_problem
from hermes_core.specs import Access, Ref

if TYPE_CHECKING:
    from hermes_core.rollout import RolloutLimits
    from hermes_core.tooling import ResultBudget

Action = Literal["retry", "drop", "score", "mask"]
DEFAULT_POLICY: Mapping[str, Action] = {
    "model_error": "retry",
    "tool_backend_error": "retry",
    "framework_error": "drop",
    "task_error": "drop",
    "verifier_error": "drop",
    "context_limit": "score",
    "token_limit": "score",
    "time_limit": "score",
    "max_turns": "score",
    "tool_call_limit": "score",
}
"""What happens to a rollout, by the cause that ended it; see `hermes_runner.policy`."""


_SANDBOX = TypeAdapter(SandboxSpec)
_TOKEN_PROTOCOLS = ("vllm", "sglang", "atropos")
"""The protocols of hermes-tokens. One of another package reports what it lacks when the run opens its model."""
_OPTION_KINDS = ("tool", "model", "task_source")
"""Kinds whose options are in `options`."""
_OPTION_PLACES = {
    "backend": "backend_options or backends",
    "engine": "engine_options",
    "parser": "tool_call_parser_options",
    "sink": "sinks",
    "verifier": "the verifier of the task",
    "cli_command": "the arguments of the command",
}
"""Where the options of other kinds are."""
_OWN_KEYS = {
    "isolation": "isolation",
    "network": "network",
    "timeout": "terminal_timeout",
    "lifetime": "terminal_lifetime",
}
"""Fields of `SandboxSpec` that have separate keys in the config, by hermes-agent's names."""


class Choice(BaseModel):
    """The name of a component and its options; in a config, a string is a component without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value


class PluginConfig(BaseModel):
    """Which plugins are loaded; see `PluginSettings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: list[str] | None = None
    disable: list[str] = Field(default_factory=list)
    prefer: dict[str, str] = Field(default_factory=dict)
    extra: list[str] = Field(default_factory=list)
    strict: bool = False


class RunConfig(BaseModel):
    """All settings of a run. Keys that hermes-agent had keep its names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: str
    """A task file (.jsonl) or a Harbor task folder."""
    out: str | None = None
    """Output folder. Not set: that of the same run if it was interrupted, else a new one below `runs`."""
    model: str = "oracle"
    """`oracle`, `nop`, or the address of an OpenAI-compatible server, ending in /v1."""
    model_name: str | None = None
    allow_unlisted_model: bool = False
    """Use `model_name` even if the server does not list it as a model, such as the name of an adapter."""
    model_protocol: str = "chat"
    """Protocol of the server: OpenAI chat completions, or token ids in and out, which makes rollouts trainable."""
    tokenizer: str | None = None
    """Folder of the model's tokenizer in Hugging Face form; the token protocols need it."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    require_exact: bool = False
    """Stop at the first rollout whose samples are not exactly what the model sampled."""
    allow_branches: bool | None = None
    """Where a branch may begin. Not set: where history is edited, or a turn ends with a stop token that the chat
    template does not write. True: also where a template that cannot be followed rewrites history. False: nowhere."""
    allow_constrained: bool = False
    """Accept samples that were drawn under a mask (a grammar, a bias) as exact; they are marked and counted."""
    logprobs_mode: Literal["raw", "processed"] | None = None
    """Which logprobs the server sends, as its own option says; recorded with the rollouts."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never stored."""
    model_timeout: float = Field(600.0, allow_inf_nan=False, gt=0)
    model_retries: int = Field(4, ge=0)
    rate_limit_patience: float = Field(900.0, allow_inf_nan=False, ge=0)
    """Total seconds that one model call waits for the server's rate limit."""
    mistake_rate: float = Field(0.25, allow_inf_nan=False, ge=0, le=1)
    """For `oracle`: how often a rollout makes mistakes."""
    group_size: int = Field(1, ge=1)
    max_tasks: int | None = Field(None, ge=1)
    task_filter: list[str] = Field(default_factory=list)
    """Ids of the tasks to run; empty means all."""
    split: str | None = None
    seed: int = 0
    max_concurrent: int = Field(16, ge=1)
    """Maximum number of concurrent rollouts."""
    engine: str = "local"
    """Where rollouts run: `local` is this process; plugins add other engines."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Options of tools, models and task sources, by kind and name: `{tool: {lab_search: {host: …}}}`."""
    max_sandbox_starts: int = Field(8, ge=1)
    enabled_toolsets: list[str] | None = None
    disabled_toolsets: list[str] = Field(default_factory=list)
    distribution: str | None = None
    system_prompt: str | None = None
    max_agent_turns: int = Field(30, ge=1)
    max_total_tokens: int | None = Field(None, ge=1)
    time_limit: float | None = Field(None, allow_inf_nan=False, gt=0)
    max_tool_calls: int | None = Field(None, ge=0)
    max_truncated_replies: int | None = Field(3, ge=1)
    """A rollout ends after so many replies in a row were cut off in the middle of a tool call by the token limit of one
    model call; null: never."""
    agent_temperature: float = Field(1.0, allow_inf_nan=False, ge=0)
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of sampled tokens of one model call."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    terminal_backend: str = "local"
    backend_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the run's backend; they override the ones that `backends` has for it."""
    backends: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options by backend, so that changing `terminal_backend` is enough to use another one."""
    terminal_timeout: float = Field(120.0, allow_inf_nan=False, gt=0)
    terminal_lifetime: float = Field(3600.0, allow_inf_nan=False, gt=0)
    isolation: str | None = None
    """Isolation level that every sandbox must have. Not set: the first level that the backend declares."""
    network: Literal["none", "allowlist", "full"] = "full"
    sandbox: dict[str, Any] = Field(default_factory=dict)
    """Further fields of `SandboxSpec`."""
    tool_pool_size: int = Field(32, ge=1)
    tool_call_parser: str | None = None
    tool_call_parser_options: dict[str, Any] = Field(default_factory=dict)
    default_result_size_chars: int = Field(100_000, ge=1)
    turn_budget_chars: int = Field(200_000, ge=1)
    preview_size_chars: int = Field(1_500, ge=0)
    tool_result_overrides: dict[str, int] = Field(default_factory=dict)
    verifier_timeout: float = Field(600.0, allow_inf_nan=False, gt=0)
    verifier_access: Access = "live"
    """Minimum access level of verifiers, in rising order live, read_only, fresh; tasks and verifiers can raise it."""
    policy: dict[str, Action] = Field(default_factory=dict)
    max_attempts: int = Field(3, ge=1)
    max_failures: int = Field(16, ge=0)
    """The run stops when so many rollouts have failed with one cause and none has succeeded; 0: never."""
    report: bool = True
    """Write `report.html`, with the sink `report`; False excludes naming that sink in `sinks`."""
    sinks: list[Choice] = Field(default_factory=list)
    """Where outcomes are written in addition to `rollouts.jsonl`; each sink at most once."""
    plugins: PluginConfig = PluginConfig()

    @field_validator("options", mode="before")
    @classmethod
    def _option_kinds(cls, value: object) -> object:
        for kind in value if isinstance(value, Mapping) else ():
            if kind not in _OPTION_KINDS:
                place = f", whose options are in {_OPTION_PLACES[kind]}" if kind in _OPTION_PLACES else ""
                raise ValueError(f"expected {' or '.join(_OPTION_KINDS)}, got {kind!r}{place}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.enabled_toolsets is not None and self.distribution is not None:
            raise ValueError("enabled_toolsets and distribution exclude each other: name one of them")
        if unknown := sorted(set(self.policy) - set(DEFAULT_POLICY)):
            raise ValueError(f"policy has no cause {unknown[0]!r}; causes are {', '.join(DEFAULT_POLICY)}")
        names = [sink.name for sink in self.sinks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"sinks: expected each sink once, got {twice!r} {names.count(twice)} times")
        if not self.report and "report" in names:
            raise ValueError("expected one of report: false (--no-report) and a sink 'report', got both: remove one")
        self._check_backend_names()
        self._check_protocol()
        self.sandbox_spec()
        return self

    def _check_backend_names(self) -> None:
        # Which backend a name without a plugin means depends on what is installed; a run's options must not.
        names = {*self.backends, self.terminal_backend}
        for name in sorted(names):
            plugin, _, bare = name.rpartition(":")
            if plugin and bare in names:
                raise ValueError(
                    f"terminal_backend and backends: expected one name for a backend, got {bare!r} and {name!r}: "
                    f"write the same name in both, or a plugin before each {bare!r}"
                )

    def _check_protocol(self) -> None:
        if self.model_protocol == "chat":
            if self.require_exact:
                raise ValueError("require_exact needs a token protocol: set model_protocol to vllm, sglang or atropos")
        elif self.tokenizer is None and self.model_protocol in _TOKEN_PROTOCOLS:
            raise ValueError(f"model_protocol {self.model_protocol} needs the model's tokenizer: --tokenizer DIR")

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, source: str) -> Self:
        """Validate the values; an error names the key, the nearest known key, and the value unless it can be secret."""
        searched = {name: item for name, item in values.items() if name != "system_prompt"}  # never withheld
        if withheld := next(find_withheld(searched), None):
            raise ConfigError(
                f"{source}: {withheld}: expected a secret, got {WITHHELD!r}, which is printed in place of one",
                hint="write the secret there, or remove the key if its environment variable is set",
            )
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            # The cause is suppressed, because its text repeats the values.
            raise _readable(error, source) from None

    def all_sinks(self) -> list[Choice]:
        """Return the sinks of the run, including the one that writes the report."""
        of_its_own = self.report and all(sink.name != "report" for sink in self.sinks)
        return [Choice(name="report"), *self.sinks] if of_its_own else self.sinks

    def options_of(self, kind: str, name: str) -> Mapping[str, Any]:
        """Return what `options` has for a tool, a model or a task source."""
        return self.options.get(kind, {}).get(name, {})

    def backend_ref(self) -> Ref:
        """Return the terminal backend with its options."""
        options = {**self.backends.get(self.terminal_backend, {}), **self.backend_options}
        return Ref(kind="backend", name=self.terminal_backend, options=options)

    def run_backends(self) -> RunBackends:
        """Return the run's settings of backends, for commands that inspect backends."""
        own = self.backend_ref()
        return RunBackends(
            backend=own.name,
            sandbox=self.sandbox_spec(),
            options={**self.backends, own.name: own.options},
            plugins=self.plugins.model_dump(),
        )

    def sandbox_spec(self) -> SandboxSpec:
        """Return the sandbox spec of every rollout, without the fields that its task sets."""
        own = {key: getattr(self, name) for key, name in _OWN_KEYS.items()}
        known = set(SandboxSpec.__dataclass_fields__) - set(own) - {"rollout_id"}
        for key in self.sandbox:
            if key in own:
                raise ValueError(f"sandbox has no key {key!r}; set {_OWN_KEYS[key]!r} of the run instead")
            if key not in known:
                raise ValueError(f"sandbox has no key {key!r}; {_nearest(key, known)}")
        try:
            return _SANDBOX.validate_python({**self.sandbox, **own})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            key = str(problem["loc"][0]) if problem["loc"] else ""
            named = f"sandbox.{'.'.join(map(str, problem['loc']))}" if key not in own else _OWN_KEYS[key]
            # All fields of a sandbox can be shown, except its environment variables.
            found = quote_value(problem["input"], problem["loc"])
            raise ValueError(f"{named}: {validation_message(problem, found)}") from None

    def limits(self) -> RolloutLimits:
        """Return the limits of every rollout, without those that its task sets."""
        from hermes_core.rollout import RolloutLimits  # not for --print-config, which runs no rollout

        names = RolloutLimits.__dataclass_fields__
        return RolloutLimits(**{name: getattr(self, name) for name in names})

    def sampling(self) -> dict[str, Any]:
        """Return the fields that go into every model request."""
        fixed: dict[str, Any] = {"temperature": self.agent_temperature}
        if self.max_tokens is not None:
            fixed["max_tokens"] = self.max_tokens
        return fixed | self.extra_body

    def result_budget(self) -> ResultBudget:
        """Return how tool results are shortened."""
        from hermes_core.tooling import ResultBudget  # not for --print-config, as above

        return ResultBudget(
            default_result_size_chars=self.default_result_size_chars,
            turn_budget_chars=self.turn_budget_chars,
            preview_size_chars=self.preview_size_chars,
            tool_result_overrides=self.tool_result_overrides,
        )

    def plugin_settings(self) -> PluginSettings:
        """Return which plugins to load."""
        return PluginSettings().with_config(self.plugins.model_dump())


def load_config(path: Path) -> dict[str, Any]:
    """Read a YAML file into a mapping; raises `ConfigError` with the place of what is wrong."""
    import yaml

    from hermes_runner.yaml_reading import read_yaml

    try:
        values = read_yaml(path.read_text(encoding="utf-8"), source=f"config {path}")
    except OSError as error:
        raise ConfigError(f"config {path}: {error.strerror}", hint="check the path after --config") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {path} is not valid YAML in UTF-8: {yaml_problem(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"config {path}: expected a mapping of keys to values, got {type(values).__name__}")
    return values


def _readable(error: ValidationError, source: str) -> ConfigError:
    problems = error.errors(include_url=False)
    # A misspelt required key causes two problems, an unknown key and a missing one; the unknown one is reported.
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        *level, name = problem["loc"]
        known = OptionSchema(RunConfig).names_at(level)
        return ConfigError(f"{source} has an unknown key {key!r}", hint=_nearest(str(name), known))
    if not key:
        return ConfigError(f"{source}: {problem['msg'].removeprefix('Value error, ')}")
    if problem["type"] == "missing":
        return ConfigError(f"{source}: {key} is missing")
    return ConfigError(f"{source}: {key}: {validation_message(problem, _show_input(problem))}")


def _show_input(problem: Any) -> str:
    """Quote the value of a problem; of options show only the type, as only their component knows which are secret."""
    name, value = str(problem["loc"][0]), problem["input"]
    is_open = name in {"backends", "sinks", "sandbox", "extra_body", "options"} or name.endswith("_options")
    return type(value).__name__ if is_open else quote_value(value, problem["loc"])


def _nearest(key: str, known: Iterable[str]) -> str:
    return did_you_mean(key, known, otherwise=f"known keys: {', '.join(sorted(known))}", cutoff=0.5)
