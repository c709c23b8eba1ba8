"""`hermes-core doctor`: what works here, and the next command where something does not."""

from __future__ import annotations

import json

import pytest

from hermes_core.cli import main


@pytest.fixture
def command(capsys, tmp_path):
    def run(*arguments):
        environ = {
            "XDG_STATE_HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "HERMES_PLUGINS": "hermes-sandbox,hermes-tools,hermes-models,hermes-tokens,hermes-runner",
        }
        status = main(["doctor", *arguments], environ=environ)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_what_works_and_what_is_not_installed_is_said_with_the_next_command(command):
    status, out, _ = command("--json")
    assert status == 0
    told = json.loads(out)
    assert told["plugins"] == []
    rows = {row["backend"]: row for row in told["backends"]}
    assert "none" in rows["local"]["works"]
    assert rows["docker"]["installed"] is False
    assert rows["docker"]["troubles"][0]["hint"] == "pip install hermes-backend-docker"
    assert {"modal", "singularity", "nomad", "slurm", "ray", "ssh", "pool"} <= rows.keys()


def test_the_text_has_a_line_for_each_backend(command):
    status, out, _ = command()
    assert status == 0
    assert "local" in out
    assert "works at none" in out
    assert "→ pip install hermes-backend-nomad" in out


def test_a_backend_that_is_named_and_does_not_work_is_a_failure_with_its_next_command(command):
    status, out, _ = command("local", "--backend-options", '{"colour": "green"}')
    assert status == 1
    assert "colour" in out
    assert "→ known options: " in out


@pytest.mark.parametrize("text", ["[]", "{", '{"x": 1}'])
def test_options_that_are_no_object_or_for_nobody_are_refused(command, text):
    status, _, err = command("--backend-options", text)
    assert status == 2
    assert "--backend-options" in err


def test_a_plugin_that_fails_to_load_fails_the_command(capsys, tmp_path):
    broken = tmp_path / "broken_plugin.py"
    broken.write_text("raise RuntimeError('not today')\n")
    status = main(
        ["-p", str(broken), "doctor"],
        environ={"HERMES_PLUGINS": "hermes-sandbox,hermes-tools,hermes-models,hermes-tokens,hermes-runner"},
    )
    out = capsys.readouterr().out
    assert status == 1
    assert "1 broken" in out
    assert "not today" in out
