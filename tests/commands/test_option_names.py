"""One name for each option, on the command line and in a config; and advice that is not what has just failed."""

from __future__ import annotations

import json

import pytest
import yaml


def test_a_backend_goes_by_one_name_and_its_alias_in_every_command(hermes, tasks, small_task):
    path = tasks(small_task("one"))
    commands = [("tasks", "check", path), ("sandboxes", "ps"), ("sandboxes", "gc"), ("sandboxes", "kill")]
    for command in commands:
        for name in ("--terminal-backend", "--backend"):
            assert hermes(*command, name, "local").returncode == 0
    for command in (*commands, ("run", path), ("tool-executor", "serve")):
        assert "--terminal-backend NAME, --backend NAME" in " ".join(hermes(*command, "--help").stdout.split())


@pytest.mark.parametrize(
    "flags", [("--tool-call-parser", "--tool-call-parser-options"), ("--parser", "--parser-options")]
)
def test_flags_have_the_names_of_the_configs_keys_and_the_shorter_ones_still_work(hermes, tasks, small_task, flags):
    given = (flags[0], "hermes", flags[1], '{"promote_drafts": true}', "--backend", "local")
    printed = hermes("run", tasks(small_task("one")), *given, "--print-config")
    config = yaml.safe_load(printed.stdout)
    assert config["tool_call_parser"] == "hermes"
    assert config["tool_call_parser_options"] == {"promote_drafts": True}
    assert config["terminal_backend"] == "local"


@pytest.mark.parametrize("words", [("run", "x", "--group", "3"), ("tasks", "list", "x", "--js"), ("--vers",)])
def test_the_beginning_of_an_option_is_no_option(hermes, words):
    refused = hermes(*words)
    assert refused.returncode == 2
    assert words[-2 if words[0] == "run" else -1] in refused.stderr


def test_a_sink_may_be_named_by_a_text(hermes, tasks, small_task, tmp_path):
    (tmp_path / "run.yaml").write_text(f"tasks: {tasks(small_task('one'))}\nsinks: [no-such-sink]\n")
    printed = hermes("run", "--config", "run.yaml", "--print-config")
    assert yaml.safe_load(printed.stdout)["sinks"] == [{"name": "no-such-sink", "options": {}}]


def test_a_part_of_a_verifier_may_be_named_by_a_text(hermes, tasks, small_task, rollouts):
    gated = {"name": "gated", "options": {"gates": [{"name": "exit_code", "options": {"command": "true"}}]}}
    gated["options"]["parts"] = ["no_such_verifier"]
    refused = hermes("tasks", "list", tasks(small_task("one", verifier=gated)))
    assert "no_such_verifier" in refused.stdout
    assert "valid dictionary" not in refused.stdout


def test_a_listing_says_what_is_wrong_with_the_options_of_a_verifier(hermes, tasks, small_task):
    bad = small_task("bad", verifier={"name": "exit_code", "options": {"comand": "true"}})
    unknown = small_task("unknown", verifier="exit_cod")
    nested = small_task("nested", verifier={"name": "weighted", "options": {"parts": [{"name": "exit_code"}]}})
    path = tasks(small_task("good"), bad, unknown, nested)
    listed = hermes("tasks", "list", path, "--json")
    found = {problem["task_id"]: problem["message"] for problem in json.loads(listed.stdout)["problems"]}
    assert (listed.returncode, sorted(found)) == (1, ["bad", "nested", "unknown"])
    assert "comand" in found["bad"]
    assert "exit_cod" in found["unknown"]
    assert "command" in found["nested"]


def test_no_advice_is_the_command_that_has_just_failed(hermes, tasks):
    path = tasks('{"id": "broken", ')
    refused = hermes("tasks", "list", path)
    assert refused.returncode == 2
    assert f"hermes-core tasks list {path}" not in refused.stderr
    assert f"hermes-core tasks list {path}" in hermes("run", path, "--out", "out").stderr
