"""The command's own part: global options, finding commands, errors and exit statuses."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from throwaway_plugins import HEADER

from hermes_core import __version__
from hermes_core.cli import main
from hermes_core.discovery.kinds import CORE_COMMANDS

COMMAND = """
@hookimpl
def hermes_cli_commands():
    return [CommandSpec(name="greet", summary="Greet somebody.", target="SELF:Greet")]

class Greet:
    def configure(self, parser):
        parser.add_argument("name")
        parser.add_argument("--loud", action="store_true")
    def run(self, arguments):
        BODY
        print("hello", arguments.name, arguments.loud, arguments.plugin_settings.extra)
        return 7
"""


@pytest.fixture
def greet(site):
    def install(body="pass"):
        return site.install("acme-greet", COMMAND.replace("BODY", body))

    install()
    return {"HERMES_PLUGINS": "acme-greet"}


def failing(site, expression):
    body = f"from hermes_core.contracts import errors; raise {expression}"
    return site.install("acme-fail", COMMAND.replace("BODY", body).replace('"greet"', '"fail"'))


def test_the_version_is_printed(capsys):
    assert main(["--version"], environ={}) == 0
    assert capsys.readouterr().out == f"hermes-core {__version__}\n"


def test_help_lists_the_commands_of_the_core_and_of_plugins_without_importing_one(capsys, greet):
    with pytest.raises(SystemExit) as caught:
        main(["--help"], environ=greet)
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in CORE_COMMANDS)
    assert "greet    Greet somebody." in text
    assert "hermes-core plugins show COMMAND" in text


def test_help_says_why_the_commands_of_plugins_are_not_listed(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"], environ={"HERMES_PLUGINS": "nobody"})
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "plugins list, show and diagnose plugins" in text
    assert "names 'nobody', which is not an installed plugin" in text


def test_help_names_a_command_that_two_plugins_bring(capsys, greet, site):
    site.install("acme-other", COMMAND.replace("BODY", "pass"))
    with pytest.raises(SystemExit):
        main(["--help"], environ={"HERMES_PLUGINS": "acme-greet,acme-other"})
    text = capsys.readouterr().out
    assert "acme-greet:greet, acme-other:other" in text
    assert "list, show and diagnose plugins" in text


def test_no_command_prints_the_help_and_is_a_usage_error(capsys):
    assert main([], environ={}) == 2
    assert "commands:" in capsys.readouterr().err


def test_an_unknown_command_offers_a_near_one(capsys, greet):
    assert main(["plugin"], environ=greet) == 2
    assert "unknown command 'plugin'" in (text := capsys.readouterr().err)
    assert "did you mean 'plugins'?" in text
    assert main(["gret", "x"], environ=greet) == 2
    assert "did you mean 'greet'?" in capsys.readouterr().err


def test_an_unknown_command_names_the_plugins_that_did_not_load(capsys, site):
    site.install("acme-broken", "raise RuntimeError('boom')")
    assert main(["build"], environ={"HERMES_PLUGINS": "acme-broken"}) == 2
    assert "not loaded: acme-broken:broken" in capsys.readouterr().err


def test_a_plugins_command_runs_and_its_status_is_the_exit_status(capsys, greet):
    assert main(["greet", "you", "--loud"], environ=greet) == 7
    assert capsys.readouterr().out == "hello you True ()\n"


@pytest.mark.parametrize(
    "line", [["-p", "MINE", "greet", "you"], ["greet", "-p", "MINE", "you"], ["greet", "you", "-pMINE"]]
)
def test_global_options_may_stand_anywhere(capsys, greet, tmp_path, line):
    mine = tmp_path / "mine.py"
    mine.write_text(HEADER)
    assert main([part.replace("MINE", str(mine)) for part in line], environ=greet) == 7
    assert capsys.readouterr().out == f"hello you False ('{mine}',)\n"


def test_after_two_dashes_everything_belongs_to_the_command(capsys, greet):
    assert main(["greet", "--", "--debug"], environ=greet) == 7
    assert capsys.readouterr().out.startswith("hello --debug False")


def test_a_local_plugin_can_bring_a_command(capsys, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEADER + COMMAND.replace("SELF", "mine").replace("BODY", "pass"))
    assert main(["-p", str(path), "greet", "you"], environ={"HERMES_PLUGINS": ""}) == 7


def test_two_plugins_with_one_command_are_a_conflict(capsys, site, greet):
    site.install("other-greet", COMMAND.replace("BODY", "pass"))
    assert main(["greet", "you"], environ={"HERMES_PLUGINS": "acme-greet,other-greet"}) == 2
    assert "cli_command 'greet' is declared by 2 plugins" in capsys.readouterr().err
    assert main(["acme-greet:greet", "you"], environ={"HERMES_PLUGINS": "acme-greet,other-greet"}) == 7


@pytest.mark.parametrize(
    ("expression", "status"),
    [
        ("errors.ConfigError('wrong', hint='do this')", 2),
        ("errors.BackendError('wrong', hint='do this')", 1),
        ("errors.HermesError('wrong', hint='do this')", 1),
    ],
)
def test_an_error_is_one_clear_message_and_a_status(capsys, site, expression, status):
    failing(site, expression)
    assert main(["fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"}) == status
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hermes-core: wrong\n  → do this\n")


def test_debug_adds_the_traceback(capsys, site):
    failing(site, "errors.ConfigError('wrong')")
    assert main(["--debug", "fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"}) == 2
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(capsys, site):
    failing(site, "KeyboardInterrupt")
    assert main(["fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"}) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plugins list --jsn", "plugins list: unknown argument --jsn; did you mean --json?"),
        ("greet you --lout", "greet: unknown argument --lout; did you mean --loud?"),
        ("plugins doctor --timeout x", "plugins doctor: --timeout: expected a number, got 'x'"),
    ],
)
def test_a_wrong_argument_is_one_line_and_the_way_to_the_help(capsys, greet, line, message):
    with pytest.raises(SystemExit) as caught:
        main(line.split(), environ=greet)
    assert caught.value.code == 2
    command = message.partition(":")[0]
    assert capsys.readouterr().err == f"hermes-core {message}\n  → hermes-core {command} --help\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-p", "-p/--plugin: expected a value, got none"),
        ("--pugin", "unknown argument --pugin; did you mean --plugin?"),
        ("plugins nope", "plugins: ACTION: expected one of 'list', 'show', 'doctor', got 'nope'"),
    ],
)
def test_a_wrong_global_option_or_subcommand_is_one_line_too(capsys, line, message):
    with pytest.raises(SystemExit) as caught:
        main(line.split(), environ={})
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert "usage:" not in err


def test_a_bug_of_a_command_is_told_as_its_plugins_and_debug_has_the_traceback(capsys, site):
    """It was a raw traceback, in which nobody who has not written the plugin finds its name."""
    failing(site, "ZeroDivisionError('by nothing')")
    assert main(["fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"}) == 2
    err = capsys.readouterr().err
    assert err.startswith("hermes-core: command 'fail' of plugin acme-fail:fail raised ZeroDivisionError: by nothing\n")
    assert "→ --debug prints the traceback; see: hermes-core plugins show acme-fail:fail" in err
    assert "Traceback" not in err
    assert main(["--debug", "fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"}) == 2
    err = capsys.readouterr().err
    assert "in run\n" in err
    assert err.index("ZeroDivisionError: by nothing") < err.index("direct cause")


def test_a_command_chooses_its_own_status(site):
    failing(site, "SystemExit(143)")
    with pytest.raises(SystemExit) as ended:
        main(["fail", "x"], environ={"HERMES_PLUGINS": "acme-fail"})
    assert ended.value.code == 143


def test_a_wrong_environment_is_a_users_error(capsys):
    assert main(["plugins", "list"], environ={"HERMES_PLUGINS": "nobody"}) == 2
    assert "names 'nobody', which is not an installed plugin" in capsys.readouterr().err


@pytest.mark.parametrize("command", CORE_COMMANDS)
def test_every_core_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"], environ={})
    assert caught.value.code == 0
    assert f"hermes-core {command}" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_crash():
    script = Path(sysconfig.get_path("scripts")) / "hermes-core"
    with subprocess.Popen(
        [sys.executable, "-u", str(script), "plugins", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()
