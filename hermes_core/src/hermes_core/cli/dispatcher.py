"""The command `hermes-core`: global options, then one module per subcommand, imported when it is called."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery import Registry

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, *, environ: Mapping[str, str] | None = None) -> int:
    """Run the command line and return its exit status: 0 success, 2 the user must change something, 1 any other."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the output's encoding lacks (LC_ALL=C) are printed as escapes, as stderr does.
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        return _print_version()
    from hermes_core.contracts.errors import HermesError, UserError

    try:
        return _dispatch(arguments, os.environ if environ is None else environ)
    except HermesError as error:
        _complain(error, arguments)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt as error:
        account = f": {error}" if str(error) else ""
        continues = "; the same command continues" if _split(arguments)[1] == "run" else ""
        sys.stderr.write(f"interrupted{account}{continues}\n")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has gone (`… | head`). Python would report that again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(arguments: list[str], environ: Mapping[str, str]) -> int:
    before, command, after = _split(arguments)
    if command is None:
        return _without_command(before, environ)
    import importlib

    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery.kinds import CORE_COMMANDS

    plugin_options, rest = _take_global_options([*before, *after])
    settings = PluginSettings.from_environment(environ).with_options(plugin_options)
    if command in CORE_COMMANDS:
        return _run(command, importlib.import_module(f"hermes_core.cli.{command}"), settings, rest)
    made, plugin, registry = _plugin_command(command, settings, environ)
    try:
        return _run(command, made, settings, rest, registry=registry)
    except (HermesError, BrokenPipeError):
        raise
    except Exception as error:  # the plugin boundary: a command may raise anything, and the message names its plugin
        from hermes_core.discovery.traces import plugin_error

        raise plugin_error(f"command {command!r}", plugin, error) from error


def _split(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Cut at the first word that is neither an option nor the value of `-p`."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in {"-p", "--plugin"} else 1
    if index >= len(arguments):
        return arguments, None, []
    return arguments[:index], arguments[index], arguments[index + 1 :]


def _without_command(options: list[str], environ: Mapping[str, str]) -> int:
    if "--version" in options:
        return _print_version()
    import argparse

    from hermes_core.cli.argument_parser import CommandParser

    commands, trouble = _commands(options, environ)
    width = max(map(len, commands))
    lines = "\n".join(f"  {name:{width}}  {text}" for name, text in commands.items())
    note = "All commands except `plugins` come from plugins; see: hermes-core plugins show COMMAND"
    if trouble is not None:
        note = f"The commands of plugins are not listed: {trouble}"
    parser = CommandParser(
        prog="hermes-core",
        usage="hermes-core [-p NAME] [--debug] COMMAND …",
        description="Run agentic tasks, score them, and manage the plugins that do it.",
        epilog=f"commands:\n{lines}\n\n{note}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_global_options(parser)
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.parse_args(options)
    parser.print_help(sys.stderr)
    return 2


def _commands(options: list[str], environ: Mapping[str, str]) -> tuple[dict[str, str], HermesError | None]:
    """Return every command with its line of help, and why plugins' commands are missing if the settings are wrong."""
    from hermes_core.contracts.errors import HermesError
    from hermes_core.contracts.plugin_settings import PluginSettings
    from hermes_core.discovery.kinds import CORE_COMMANDS
    from hermes_core.discovery.loader import load_plugins_tolerantly

    try:
        settings = PluginSettings.from_environment(environ).with_options(_take_global_options(options)[0])
        registry = load_plugins_tolerantly(settings, environ=environ)
    except HermesError as error:
        return CORE_COMMANDS, error
    of_plugins = {name: _summary(registry, name) for name in registry.names("cli_command")}
    return dict(sorted({**CORE_COMMANDS, **of_plugins}.items())), None


def _summary(registry: Registry, command: str) -> str:
    from hermes_core.contracts.errors import AmbiguousComponentError

    try:
        return registry.spec("cli_command", command).summary
    except AmbiguousComponentError as error:
        return str(error.args[0])


def _print_version() -> int:
    from hermes_core import __version__

    sys.stdout.write(f"hermes-core {__version__}\n")
    return 0


def _add_global_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("plugins and errors")
    group.add_argument(
        "-p",
        "--plugin",
        action="append",
        default=[],
        dest="plugin_options",
        metavar="NAME",
        help="add a plugin: an installed one by name, a module, or a path to a .py file; no:NAME leaves one out",
    )
    group.add_argument("--debug", action="store_true", help="print the traceback of an error")


def _run(
    command: str, module: Any, settings: PluginSettings, rest: list[str], *, registry: Registry | None = None
) -> int:
    from hermes_core.cli.argument_parser import CommandParser

    parser = CommandParser(prog=f"hermes-core {command}")
    module.configure(parser)
    # These were taken out of the line already; they are declared here for the help.
    _add_global_options(parser)
    arguments = parser.parse_args(rest)
    arguments.plugin_settings, arguments.loaded_plugins = settings, registry
    status: int = module.run(arguments)
    return status


def _take_global_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the values of `-p`, and the arguments without global options; those after `--` are left alone."""
    from hermes_core.cli.argument_parser import CommandParser

    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = CommandParser(prog="hermes-core", add_help=False)
    _add_global_options(parser)
    known, rest = parser.parse_some(arguments[:cut])
    return known.plugin_options, rest + arguments[cut:]


def _plugin_command(command: str, settings: PluginSettings, environ: Mapping[str, str]) -> tuple[Any, str, Registry]:
    """Return a plugin's command, the plugin's id and the registry, which is built only for a name the core lacks."""
    from hermes_core.contracts.errors import UnknownComponentError
    from hermes_core.discovery.kinds import TOLERANT
    from hermes_core.discovery.loader import load_plugins_tolerantly, require_asked
    from hermes_core.specs import ComponentSpec

    registry = load_plugins_tolerantly(settings, environ=environ)
    try:
        spec = registry.spec("cli_command", command)
        if not (isinstance(spec, ComponentSpec) and TOLERANT in spec.capabilities):
            require_asked(registry)
        made = registry.create("cli_command", command)
        return made, registry.component("cli_command", command).plugin.id, registry
    except UnknownComponentError as error:
        require_asked(registry)
        raise _no_command(command, registry) from error


def _no_command(command: str, registry: Registry) -> HermesError:
    from hermes_core.contracts.errors import UserError
    from hermes_core.discovery.components.lookup_errors import how_to_get
    from hermes_core.discovery.components.suggestions import package_for
    from hermes_core.discovery.kinds import CORE_COMMANDS
    from hermes_core.nearest import did_you_mean

    known = [*CORE_COMMANDS, *registry.names("cli_command")]
    hint = did_you_mean(command, known, otherwise=f"commands: {', '.join(known)}")
    if package := package_for("cli_command", command):
        hint = how_to_get(package, registry.plugins)
    failed = [record for record in registry.plugins if record.state in {"failed", "incompatible", "blocked"}]
    others = f"; not loaded: {', '.join(record.id for record in failed)}" if failed else ""
    return UserError(f"unknown command {command!r}{others}", hint=hint)


def _complain(error: HermesError, arguments: list[str]) -> None:
    if "--debug" in arguments:
        import traceback

        traceback.print_exception(error)
    # The command that has just failed is not a useful hint.
    is_repeated = (error.hint or "").removeprefix("see: ") == " ".join(["hermes-core", *arguments])
    sys.stderr.write(f"hermes-core: {error.message if is_repeated else error}\n")
