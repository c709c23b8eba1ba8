"""`hermes-core run`: a task file in, scored rollouts out."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_runner.config import RunConfig
    from hermes_runner.run.run import RunResult

_DESCRIPTORS = 65536
ALIASES = {
    "--terminal-backend": ("--backend",),
    "--tool-call-parser": ("--parser",),
    "--tool-call-parser-options": ("--parser-options",),
}
"""Shorter names of flags; the longer ones are the keys of the config."""
# flag, config key, type, help. A type of `list` takes comma-separated words, `dict` takes JSON.
FLAGS: tuple[tuple[str, str, Any, str], ...] = (
    ("--out", "out", str, "output folder (that of the same run if it was interrupted, else a new one in runs)"),
    ("--model", "model", str, "oracle, nop, or the address of an OpenAI-compatible server, ending in /v1 (oracle)"),
    ("--model-name", "model_name", str, "the model's name on that server"),
    (
        "--model-protocol",
        "model_protocol",
        str,
        "protocol of the server: chat, or vllm, sglang or atropos for token ids",
    ),
    ("--tokenizer", "tokenizer", str, "folder of the model's tokenizer, for the token protocols"),
    ("--chat-template-kwargs", "chat_template_kwargs", dict, "JSON object of extra variables for the chat template"),
    ("--logprobs-mode", "logprobs_mode", str, "which logprobs the server sends: raw or processed"),
    ("--api-key-env", "api_key_env", str, "environment variable that holds the server's key"),
    ("--model-timeout", "model_timeout", float, "seconds one model call may take"),
    ("--model-retries", "model_retries", int, "how often a failed model call is repeated, if that is safe"),
    ("--rate-limit-patience", "rate_limit_patience", float, "seconds one model call waits for a server's rate limit"),
    ("--mistake-rate", "mistake_rate", float, "for oracle: share of rollouts with mistakes, 0 to 1 (0.25)"),
    ("--group-size", "group_size", int, "rollouts per task (1)"),
    ("--max-tasks", "max_tasks", int, "run only the first N tasks"),
    ("--task-filter", "task_filter", list, "run only these task ids"),
    ("--split", "split", str, "run only tasks of this split"),
    ("--seed", "seed", int, "seed of all random choices"),
    ("--max-concurrent", "max_concurrent", int, "maximum number of concurrent rollouts (16)"),
    ("--engine", "engine", str, "where rollouts run (local); plugins add others, such as ray"),
    ("--engine-options", "engine_options", dict, "JSON object of the engine's options"),
    ("--options", "options", dict, "JSON object of options of tools, models and task sources: {KIND: {NAME: {…}}}"),
    ("--enabled-toolsets", "enabled_toolsets", list, "toolsets that the model gets (terminal,file)"),
    ("--disabled-toolsets", "disabled_toolsets", list, "toolsets to remove from the selected ones"),
    ("--distribution", "distribution", str, "draw the toolsets of each group from this distribution"),
    ("--system-prompt", "system_prompt", str, "system message of every rollout"),
    ("--max-agent-turns", "max_agent_turns", int, "model calls per rollout (30)"),
    ("--max-total-tokens", "max_total_tokens", int, "sampled tokens per rollout"),
    ("--max-tokens", "max_tokens", int, "sampled tokens per model call"),
    ("--max-tool-calls", "max_tool_calls", int, "tool calls per rollout"),
    (
        "--max-truncated-replies",
        "max_truncated_replies",
        int,
        "end a rollout when the token limit cuts off so many replies in a row in a tool call (3)",
    ),
    ("--time-limit", "time_limit", float, "seconds per rollout, verification excluded"),
    ("--agent-temperature", "agent_temperature", float, "sampling temperature"),
    ("--extra-body", "extra_body", dict, "JSON object of further request fields"),
    ("--terminal-backend", "terminal_backend", str, "where sandboxes come from (local)"),
    ("--backend-options", "backend_options", dict, "JSON object of the backend's options"),
    ("--terminal-timeout", "terminal_timeout", float, "seconds a command may run if the call sets no timeout"),
    ("--isolation", "isolation", str, "isolation level every sandbox must have: none, bwrap, …"),
    ("--network", "network", str, "network of every sandbox: none, allowlist or full"),
    ("--sandbox", "sandbox", dict, "JSON object of further sandbox fields: memory_mb, pids, allow_hosts, session, …"),
    (
        "--tool-call-parser",
        "tool_call_parser",
        str,
        "tool-call parser for raw text, and for tools that the chat template does not list",
    ),
    ("--tool-call-parser-options", "tool_call_parser_options", dict, "JSON object of the parser's options"),
    ("--verifier-timeout", "verifier_timeout", float, "seconds a verifier may take"),
    ("--verifier-access", "verifier_access", str, "minimum access of every verifier: live, read_only or fresh"),
    ("--max-attempts", "max_attempts", int, "maximum number of attempts of a rollout whose failure is retried"),
    (
        "--max-failures",
        "max_failures",
        int,
        "stop the run when so many rollouts failed with one cause and none succeeded (16; 0: never)",
    ),
)
# flag, config key, the value that it sets, help
SWITCHES: tuple[tuple[str, str, bool, str], ...] = (
    ("--allow-unlisted-model", "allow_unlisted_model", True, "use a model that the server does not list"),
    ("--require-exact", "require_exact", True, "stop at a rollout whose samples differ from what the model sampled"),
    ("--allow-constrained", "allow_constrained", True, "accept samples drawn under a grammar or another mask as exact"),
    ("--allow-branches", "allow_branches", True, "accept a template that rewrites history, and begin a branch there"),
    ("--no-allow-branches", "allow_branches", False, "refuse all that would begin a branch: one sample per rollout"),
    (
        "--no-report",
        "report",
        False,
        "write no report.html; an error if `sinks` names report. hermes-core report DIR writes it later",
    ),
)
# Names of values in the help, for flags that do not use the name of their type.
METAVARS: dict[str, str] = {
    "out": "DIR",
    "model": "NAME|URL",
    "model_protocol": "PROTOCOL",
    "tokenizer": "DIR",
    "logprobs_mode": "MODE",
    "mistake_rate": "RATE",
    "system_prompt": "TEXT",
    "agent_temperature": "NUMBER",
    "isolation": "LEVEL",
    "verifier_access": "LEVEL",
}
TYPE_METAVARS: dict[Any, str] = {str: "NAME", int: "N", float: "SECONDS", list: "LIST", dict: "JSON"}


class RunCommand:
    """The command `run`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("tasks", nargs="?", help="task file (.jsonl) or Harbor task folder")
        parser.add_argument("--config", metavar="FILE", help="YAML file with the same keys as the flags; flags win")
        parser.add_argument(
            "--print-config", action="store_true", help="print the effective config, without secrets, and exit"
        )
        parser.add_argument("--retry-failed", action="store_true", help="repeat dropped rollouts of a continued run")
        for flag, key, value, text in SWITCHES:
            parser.add_argument(flag, dest=f"config_{key}", action="store_const", const=value, help=text)
        for flag, key, kind, text in FLAGS:
            metavar, read_as = METAVARS.get(key, TYPE_METAVARS[kind]), str if kind in {list, dict} else kind
            names = (flag, *ALIASES.get(flag, ()))
            parser.add_argument(*names, dest=f"config_{key}", type=read_as, metavar=metavar, help=text)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command; returns the exit code."""
        from hermes_runner.commands.collector import paused_collector

        with paused_collector() as resume_collector:
            result = _result(arguments, resume_collector)
        return 0 if result is None else _report(result)


def _result(arguments: argparse.Namespace, on_ready: Callable[[], None]) -> RunResult | None:
    """Return the result of the run; None if the config was only to be printed."""
    from hermes_runner.config import RunConfig

    source = f"{arguments.config} with the flags" if arguments.config else "the command line"
    config = RunConfig.parse(_values(arguments), source=source)
    if arguments.print_config:
        sys.stdout.write(_as_yaml(config, arguments, os.environ))
        return None
    return _execute(config, arguments, os.environ, on_ready)


def _execute(
    config: RunConfig, arguments: argparse.Namespace, environment: Mapping[str, str], on_ready: Callable[[], None]
) -> RunResult:
    from hermes_core.discovery import load_plugins
    from hermes_runner.run.run import execute

    registry = load_plugins(config.plugin_settings(), environ=environment, loaded=_command_registry(arguments))
    api_key = _api_key(config, environment)
    _raise_descriptor_limit()
    again = arguments.retry_failed
    return execute(config, registry, api_key=api_key, stream=sys.stderr, retry_failed=again, on_ready=on_ready)


def _command_registry(arguments: argparse.Namespace) -> Registry | None:
    """Return the registry that this command was found with, so that it is not built twice; None if called from code."""
    return getattr(arguments, "loaded_plugins", None)


def _raise_descriptor_limit() -> None:
    """Allow as many open files as the system lets this user: each sandbox and each request needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _values(arguments: argparse.Namespace) -> dict[str, Any]:
    from pathlib import Path

    from hermes_core.contracts.errors import ConfigError
    from hermes_runner.config import load_config

    values = load_config(Path(arguments.config)) if arguments.config else {}
    for flag, key, kind, _ in FLAGS:
        given = getattr(arguments, f"config_{key}")
        if given is not None:
            values[key] = _parse_value(flag, kind, given)
    switched = ((key, getattr(arguments, f"config_{key}")) for _, key, _, _ in SWITCHES)
    values |= {key: value for key, value in switched if value is not None}
    if arguments.tasks is not None:
        values["tasks"] = arguments.tasks
    if "tasks" not in values:
        raise ConfigError("no tasks were named", hint="hermes-core run TASKS.jsonl, or the key tasks in --config")
    values["plugins"] = arguments.plugin_settings.with_config(values.get("plugins") or {}).to_json()
    return values


def _parse_value(flag: str, kind: Any, given: Any) -> Any:
    from hermes_core.cli import json_object

    if kind is list:
        return [word.strip() for word in given.split(",") if word.strip()]
    return json_object(flag, given) if kind is dict else given


def _api_key(config: RunConfig, environment: Mapping[str, str]) -> str | None:
    from hermes_core.contracts.errors import ConfigError

    if config.api_key_env is None:
        return None
    key = environment.get(config.api_key_env)
    if not key:
        name = config.api_key_env
        raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=…")
    return key


def _as_yaml(config: RunConfig, arguments: argparse.Namespace, environment: Mapping[str, str]) -> str:
    import yaml

    from hermes_core.contracts.errors import HermesError
    from hermes_core.discovery import load_plugins
    from hermes_runner.run.config_redaction import redact_settings

    registry = None
    with contextlib.suppress(HermesError):  # then all options of components are withheld
        registry = load_plugins(config.plugin_settings(), environ=environment, loaded=_command_registry(arguments))
    text: str = yaml.safe_dump(redact_settings(config, registry), sort_keys=False, allow_unicode=True)
    return text


def _report(result: RunResult) -> int:
    from rich.console import Console

    from hermes_core.cli import plural
    from hermes_runner.report.summary_table import render_summary

    render_summary(result.summary, Console())
    for problem in result.problems:
        sys.stderr.write(f"task not run: {problem.source}: {problem.message}\n")
    if result.clean:
        return 0
    dropped = result.summary["rollouts"]["disposition"].get("drop", 0)
    if dropped:
        again = "the same command with --retry-failed repeats them"
        sys.stderr.write(f"{plural(dropped, 'rollout')} dropped; {again}\n")
    return 1
