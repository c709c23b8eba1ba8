"""The command line of an environment: `serve`, `process` and `evaluate`, with hermes-agent's flags and YAML.

`--config x.yaml` has the sections `env:` and `openai:` and the keys `slurm` and `testing`; a flag `--env.k v` or
`--openai.k v` wins over it, and both win over `config_init()`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from hermes_atropos.compat import APIServerConfig
from hermes_atropos.config import nearest
from hermes_atropos.config_redaction import redact_config
from hermes_atropos.environment import Environment
from hermes_core.cli import end_signals, plural
from hermes_core.contracts.errors import ConfigError, HermesError, UserError
from hermes_core.redaction import quote_value, redact, validation_message
from hermes_runner import load_config, read_yaml

COMMANDS: Final = ("serve", "process", "evaluate")
_SECTIONS: Final = ("env", "openai", "slurm", "testing")
_IGNORED: Final = frozenset({"max_n_completions", "proxy_url", "server"})
"""Keys of old files for parts of atroposlib that are not used here."""
_SWITCHES: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The combined settings of a command line and its config file."""

    command: str
    env: Any
    servers: Any
    slurm: bool = False
    testing: bool = False


def main(cls: type[Environment], arguments: Sequence[str] | None = None) -> None:
    """Run a command line; exit with 2 for an error that the user must fix, 1 for any other error."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in {"-h", "--help"}:
        sys.stdout.write(_help(cls))
        sys.exit(0 if argv else 2)
    try:
        asyncio.run(_stoppable(run(cls, parse(cls, argv))))
    except HermesError as error:
        sys.stderr.write(f"{cls.name}: {error}\n")
        sys.exit(2 if isinstance(error, UserError) else 1)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("interrupted\n")
        sys.exit(130)


async def _stoppable(work: Coroutine[Any, Any, None]) -> None:
    """Handle termination signals like Ctrl-C, with every rollout cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    for number in end_signals():
        asyncio.get_running_loop().add_signal_handler(number, task.cancel, number.name)
    await work


async def run(cls: type[Environment], invocation: Invocation) -> None:
    """Create the environment and run the command."""
    env = cls(invocation.env, invocation.servers, slurm=invocation.slurm, testing=invocation.testing)
    sys.stdout.write(f"{render_config(invocation)}\n")
    if invocation.command == "serve":
        await env.env_manager()
    elif invocation.command == "process":
        env.process_mode = True
        counts = await env.process_manager()
        if counts is not None:  # an author's own method may return None
            sys.stdout.write(f"{_summary_line(counts)}\n")
    else:
        await asyncio.to_thread(_save_config, invocation)
        await env._run_evaluate()


def parse(cls: type[Environment], argv: Sequence[str]) -> Invocation:
    """Parse a command line; raise `ConfigError` with the wrong word and the nearest known one."""
    command, *rest = argv
    if command not in COMMANDS:
        raise ConfigError(f"unknown command {command!r}", hint=nearest(command, COMMANDS))
    flags = _flags(rest)
    path = flags.pop("config", None)
    file = {} if path is None else load_config(Path(str(path)))
    if unknown := sorted(set(file) - {*_SECTIONS, *_IGNORED}):
        raise ConfigError(f"config {path} has an unknown key {unknown[0]!r}", hint=nearest(unknown[0], _SECTIONS))
    default_env, default_servers = cls.config_init()
    given = {name: _section(flags, name) for name in ("env", "openai")}
    switches = {name: _switch(name, flags.pop(name, file.get(name, False))) for name in ("slurm", "testing")}
    for flag in flags:
        known = [f"env.{name}" for name in type(default_env).model_fields]
        known += [f"openai.{name}" for name in APIServerConfig.model_fields]
        raise ConfigError(f"unknown argument --{flag}", hint=nearest(flag, [*known, "config", "slurm", "testing"]))
    env = _environment(command, cls, default_env, _mapping(file, "env", path), given["env"])
    servers = _servers(default_servers, file.get("openai"), given["openai"])
    return Invocation(command=command, env=env, servers=servers, **switches)


def _flags(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse `--key value`, `--key=value` and `--key`, which means true."""
    flags: dict[str, Any] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"unexpected argument {word!r}", hint="flags are --env.NAME VALUE or --openai.NAME VALUE")
        key, equals, value = word[2:].partition("=")
        if equals:
            flags[key] = value
        elif words and not words[0].startswith("--"):
            flags[key] = words.pop(0)
        else:
            flags[key] = True
    return flags


def _section(flags: dict[str, Any], name: str) -> dict[str, Any]:
    keys = [key for key in flags if key.startswith(f"{name}.")]
    return {key.removeprefix(f"{name}."): flags.pop(key) for key in keys}


def _mapping(file: Mapping[str, Any], name: str, path: Any) -> Mapping[str, Any]:
    section = file.get(name) or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"config {path}: expected a mapping as {name}, got {type(section).__name__}")
    return section


def _environment(
    command: str,
    cls: type[Environment],
    default: Any,
    file: Mapping[str, Any],
    flags: Mapping[str, Any],
) -> Any:
    kind = type(default)
    values = {name: getattr(default, name) for name in default.model_fields_set}
    if command == "process":
        values |= {"ensure_scores_are_not_same": False, "include_messages": True}
        values.setdefault("data_path_to_save_groups", f"data/{cls.name or 'groups'}.jsonl")
    values |= dict(file)
    values |= {name: parse_flag(kind, name, text, flag=f"--env.{name}") for name, text in flags.items()}
    if values.get("wandb_name") is None:
        values["wandb_name"] = cls.name
    return _validate(kind, values, "env")


def _servers(default: Any, file: Any, flags: Mapping[str, Any]) -> Any:
    listed = file if isinstance(file, list) else [file] if file else []
    defaults = default if isinstance(default, list) else [default]
    if flags and max(len(listed), len(defaults)) > 1:
        raise ConfigError(
            "expected one server with --openai flags, got several in the config",
            hint="change the list in the config file",
        )
    given = {name: parse_flag(APIServerConfig, name, text, flag=f"--openai.{name}") for name, text in flags.items()}
    if len(listed) > 1:
        return [_validate(APIServerConfig, server, "openai") for server in listed]
    if not listed and not given:
        return default
    base = defaults[0].model_dump() if defaults else {}
    return [_validate(APIServerConfig, {**base, **(listed[0] if listed else {}), **given}, "openai")]


def parse_flag(kind: Any, name: str, text: Any, *, flag: str) -> Any:
    """Convert a flag's text for its field: JSON or YAML for lists and mappings, text for text.

    Raises:
        ConfigError: A key occurs twice in it.
    """
    if text == "None":
        return None
    field = kind.model_fields.get(name)
    if not isinstance(text, str) or field is None or field.annotation is str or _wants_text(field):
        return text
    import yaml

    try:
        value = read_yaml(text, source=flag)
    except yaml.YAMLError:
        return text
    wants_list = "list" in str(field.annotation)
    if wants_list and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list | dict | bool | int | float) else text


def _wants_text(field: Any) -> bool:
    return str(field.annotation).replace("typing.", "") in {"str | None", "Optional[str]"}


def _validate(kind: Any, values: Mapping[str, Any], section: str) -> Any:
    for key in values:
        if key not in kind.model_fields:
            raise ConfigError(f"{section}: unknown key {key!r}", hint=nearest(key, kind.model_fields))
    try:
        return kind(**values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise ConfigError(f"{section}.{key}: {validation_message(problem, _show_input(problem))}") from None


def _show_input(problem: Any) -> str:
    """Show the value, except for options and other mappings, which may contain secrets."""
    is_open = str(problem["loc"][0]).endswith(("_options", "sandbox"))
    if is_open or len(problem["loc"]) != 1 or isinstance(problem["input"], Mapping):
        return type(problem["input"]).__name__
    return quote_value(problem["input"], problem["loc"])


def _switch(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if found is None:
        raise ConfigError(f"expected true or false for {name}, got {value!r}")
    return bool(found)


def render_config(invocation: Invocation) -> str:
    """Return the whole configuration as YAML for `--config`, without API keys."""
    import yaml

    from hermes_atropos.model_servers.server_list import server_list

    values = {
        "env": redact_config(invocation.env),
        "openai": [redact(server.model_dump(mode="json")) for server in server_list(invocation.servers)],
        "slurm": invocation.slurm,
        "testing": invocation.testing,
    }
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _summary_line(counts: Mapping[str, Any]) -> str:
    """Summarise a process in one line."""
    path, before = counts["path"] or "no file", counts["groups_before"]
    if counts["is_finished_before"]:
        return f"{path} is complete with {plural(before, 'group')}, nothing was run"
    written = plural(counts["groups_written"], "group")
    said = f"{path}: {written} written, {counts['groups_failed']} failed, {before} from before"
    failed = counts["groups_to_rerun"]
    again = f"{failed} failed group is" if failed == 1 else f"{failed} failed groups are"
    return f"{said}; {again} repeated by the same command" if failed else said


def _save_config(invocation: Invocation) -> None:
    folder = invocation.env.data_dir_to_save_evals
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "evaluate_config.yaml").write_text(render_config(invocation), encoding="utf-8")


def _help(cls: type[Environment]) -> str:
    kind = type(cls.config_init()[0])
    width = max(map(len, kind.model_fields))
    lines = [f"  --env.{name:{width}}  {field.description or ''}" for name, field in kind.model_fields.items()]
    lines += [
        f"  --openai.{name:{width - 3}}  {f.description or ''}" for name, f in APIServerConfig.model_fields.items()
    ]
    head = f"usage: {cls.__name__} {{{','.join(COMMANDS)}}} [--config FILE] [--slurm] [--testing] [--env.NAME VALUE] …"
    return "\n".join([head, "", *lines, ""])
