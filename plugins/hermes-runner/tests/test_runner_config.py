"""The config of a run: names of hermes-agent, refusals, and a printed form that runs unchanged."""

from __future__ import annotations

import pytest
import yaml

from hermes_core.cli import main
from hermes_core.contracts.errors import ConfigError
from hermes_runner.config import RunConfig, load_config


def parse(**values):
    return RunConfig.parse({"tasks": "t.jsonl", **values}, source="run.yaml")


def test_the_names_and_defaults_of_hermes_agent_are_kept():
    config = parse()
    assert (config.max_agent_turns, config.agent_temperature, config.terminal_backend) == (30, 1.0, "local")
    assert (config.terminal_timeout, config.terminal_lifetime) == (120, 3600)
    assert (config.default_result_size_chars, config.turn_budget_chars, config.preview_size_chars) == (
        100_000,
        200_000,
        1_500,
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"group_sise": 4}, "unknown key 'group_sise'\n  → did you mean 'group_size'?"),
        ({"plugins": {"disabel": ["x"]}}, "unknown key 'plugins.disabel'\n  → did you mean 'disable'?"),
        ({"plugins": {"tasks": ["x"]}}, "'plugins.tasks'\n  → known keys: allow, disable, extra, prefer, strict"),
        ({"sinks": [{"name": "a", "option": {}}]}, "unknown key 'sinks.0.option'\n  → did you mean 'options'?"),
        ({"sinks": [{"nam": "a"}]}, "unknown key 'sinks.0.nam'\n  → did you mean 'name'?"),
        ({"sinks": [{"name": "a", "out": "b"}]}, "unknown key 'sinks.0.out'\n  → known keys: name, options"),
        ({"sandbox": {"memory": 5}}, "sandbox has no key 'memory'; did you mean 'memory_mb'?"),
    ],
)
def test_an_unknown_key_names_those_of_its_own_level(values, said):
    with pytest.raises(ConfigError) as caught:
        parse(**values)
    assert said in str(caught.value)


@pytest.mark.parametrize("key", ["isolation", "network", "timeout", "lifetime"])
def test_a_sandbox_field_with_a_key_of_its_own_is_not_overridden_silently(key):
    with pytest.raises(ConfigError, match=f"sandbox has no key '{key}'; set '"):
        parse(sandbox={key: "none"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"network": "ful"}, "run.yaml: network: expected 'none', 'allowlist' or 'full', got 'ful'"),
        ({"model_retries": -1}, "run.yaml: model_retries: expected greater than or equal to 0, got -1"),
        ({"sandbox": {"memory_mb": "x"}}, "run.yaml: sandbox.memory_mb: expected a valid integer, "),
        ({"sinks": [{"name": "a"}] * 2}, "run.yaml: sinks: expected each sink once, got 'a' 2 times"),
        ({"sinks": [{"options": {}}]}, "run.yaml: sinks.0.name is missing"),
    ],
)
def test_a_wrong_value_is_reported_as_what_was_expected_and_what_was_found(values, said):
    with pytest.raises(ConfigError) as caught:
        parse(**values)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("sandbox", [{"env": {"A": 5}}, {"cwd": 5}, {"pids": "many"}])
def test_a_wrong_sandbox_value_is_refused_at_once(sandbox):
    with pytest.raises(ConfigError, match=r"run.yaml"):
        parse(sandbox=sandbox)


def test_an_endless_limit_is_refused():
    with pytest.raises(ConfigError, match="terminal_timeout"):
        parse(terminal_timeout=float("inf"))


def test_an_unknown_policy_cause_lists_the_known_ones():
    with pytest.raises(ConfigError, match="model_error"):
        parse(policy={"model_eror": "retry"})


def test_toolsets_and_distribution_exclude_each_other():
    with pytest.raises(ConfigError, match="exclude each other"):
        parse(enabled_toolsets=["file"], distribution="minimal")


def test_the_printed_config_reads_back_unchanged():
    config = parse(group_size=4, extra_body={"provider": {"order": ["x"]}}, policy={"time_limit": "mask"})
    printed = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json")))
    assert RunConfig.parse(printed, source="printed") == config


def test_a_config_that_is_not_yaml_is_refused_with_its_place(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("a: [1,\nb: 2")
    with pytest.raises(ConfigError, match="line 2"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\ntasks: t\nseed: 2", 'line 3: expected each key once, got "seed" again\n  → remove one of them'),
        ("tasks: t\nbackends:\n  ssh: {host: a}\n  'ssh': {}", 'line 4: expected each key once, got "ssh" again'),
        ("backends: {ssh: {host: a, host: b}}", 'line 1: expected each key once, got "host" again'),
        ("{? &k a : 1, ? *k : 2}", 'line 1: expected each key once, got "a" again'),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", 'line 2: expected each key once, got "<<" again'),
        ("a: 1\nextra_body: &x {a: *x}", "line 2: expected an alias of a value that has ended, got *x inside &x"),
        ("sinks: &x [1, [*x]]", "line 1: expected an alias of a value that has ended, got *x inside &x"),
        ("a: " + "[" * 100_000, "line 1: expected at most 100 levels of nesting, got more"),
        ("a: " + "{a: " * 100_000, "line 1: expected at most 100 levels of nesting, got more"),
    ],
)
def test_a_repeated_key_a_circle_and_deep_nesting_are_refused_with_their_line(tmp_path, text, said):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "run.yaml")
    assert str(caught.value).startswith(f"config {tmp_path / 'run.yaml'}, {said}")


def test_the_deepest_config_that_is_read_can_be_printed(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("tasks: t\nextra_body: " + "{a: " * 98 + "1" + "}" * 98)
    assert main(["run", "--config", str(tmp_path / "run.yaml"), "--print-config"], environ={}) == 0
    assert capsys.readouterr().out.count("a:") >= 98


def test_a_key_may_override_what_is_merged_into_its_mapping(tmp_path):
    (tmp_path / "run.yaml").write_text(
        "backends:\n  ssh: &a {<<: &b {host: h, port: 1}, port: 2}\n  far: {<<: [*a, *b], 1: x, '1': y}"
    )
    far = {"host": "h", "port": 2, 1: "x", "1": "y"}
    assert load_config(tmp_path / "run.yaml")["backends"] == {"ssh": {"host": "h", "port": 2}, "far": far}


def test_a_config_that_is_missing_or_no_mapping_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--config"):
        load_config(tmp_path / "nothing.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_config(tmp_path / "list.yaml")


def test_the_options_of_several_backends_can_stand_in_one_config():
    values = {"tasks": "t", "backends": {"docker": {"image": "a", "pull": "never"}, "ssh": {"host": "h"}}}
    docker = RunConfig.parse({**values, "terminal_backend": "docker", "backend_options": {"image": "b"}}, source="s")
    assert docker.backend_ref().options == {"image": "b", "pull": "never"}
    assert RunConfig.parse({**values, "terminal_backend": "ssh"}, source="s").backend_ref().options == {"host": "h"}
    assert RunConfig.parse(values, source="s").backend_ref().options == {}
