"""The command line of an environment: hermes-agent's flags and YAML, what wins, and what is refused."""

from __future__ import annotations

import sys
import traceback
import types

import pytest
import yaml

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, lines, server
from trajectory_api import api_with_trainer

from hermes_atropos import HermesAgentBaseEnv, HermesAgentEnvConfig
from hermes_atropos.command import main, parse, render_config
from hermes_core.contracts.errors import ConfigError


class Env(PuzzleEnv):
    model = TokenDouble()

    @classmethod
    def config_init(cls):
        return HermesAgentEnvConfig(group_size=3, max_agent_turns=7), [server(model_name="of-init")]


def write_yaml(tmp_path, values):
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def test_config_init_is_what_holds_without_more():
    got = parse(Env, ["serve"])
    assert (got.command, got.env.group_size, got.env.max_agent_turns) == ("serve", 3, 7)
    assert got.servers[0].model_name == "of-init"
    assert got.env.wandb_name == "puzzle"


def test_the_file_wins_over_config_init_and_flags_over_both(tmp_path):
    """hermes-agent's YAML is accepted unchanged."""
    path = write_yaml(
        tmp_path,
        {
            "env": {"group_size": 5, "max_agent_turns": 9, "enabled_toolsets": ["terminal"]},
            "openai": {"base_url": "http://h:1/v1", "model_name": "of-file", "server_type": "openai"},
            "slurm": False,
            "testing": False,
        },
    )
    got = parse(Env, ["serve", "--config", path, "--env.group_size", "6", "--openai.model_name", "of-flag"])
    assert (got.env.group_size, got.env.max_agent_turns) == (6, 9)
    assert got.env.enabled_toolsets == ["terminal"]
    assert (got.servers[0].base_url, got.servers[0].model_name) == ("http://h:1/v1", "of-flag")


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--env.enabled_toolsets", "terminal,file"], "enabled_toolsets", ["terminal", "file"]),
        (["--env.enabled_toolsets", "[terminal, file]"], "enabled_toolsets", ["terminal", "file"]),
        (["--env.extra_body", '{"provider": {"order": ["a"]}}'], "extra_body", {"provider": {"order": ["a"]}}),
        (["--env.use_wandb", "true"], "use_wandb", True),
        (["--env.use_wandb"], "use_wandb", True),
        (["--env.use_wandb=false"], "use_wandb", False),
        (["--env.agent_temperature=0.5"], "agent_temperature", 0.5),
        (["--env.system_prompt", "123"], "system_prompt", "123"),
        (["--env.dataset_split", "1"], "dataset_split", "1"),
        (["--env.system_prompt", "{a: 1, a: 2}"], "system_prompt", "{a: 1, a: 2}"),
        (["--env.system_prompt", "None"], "system_prompt", None),
        (["--env.max_num_workers", "-1"], "max_num_workers", -1),
    ],
)
def test_a_flags_text_becomes_what_its_field_takes(words, field, value):
    assert getattr(parse(Env, ["serve", *words]).env, field) == value


def test_several_servers_come_from_the_file(tmp_path):
    path = write_yaml(tmp_path, {"openai": [{"base_url": "http://a/v1"}, {"base_url": "http://b/v1"}]})
    assert [s.base_url for s in parse(Env, ["serve", "--config", path]).servers] == ["http://a/v1", "http://b/v1"]
    with pytest.raises(ConfigError, match="expected one server with --openai flags"):
        parse(Env, ["serve", "--config", path, "--openai.model_name", "m"])


def test_process_has_its_own_defaults_and_does_not_force_wandb():
    got = parse(Env, ["process"]).env
    assert (got.ensure_scores_are_not_same, got.include_messages, got.use_wandb) == (False, True, False)
    assert got.data_path_to_save_groups == "data/puzzle.jsonl"
    assert parse(Env, ["process", "--env.include_messages", "false"]).env.include_messages is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sevre"], "did you mean 'serve'"),
        (["serve", "--env.group_sise", "4"], "did you mean 'group_size'"),
        (["serve", "--openai.model_nam", "m"], "did you mean 'model_name'"),
        (["serve", "--emv.group_size", "4"], "did you mean 'env.group_size'"),
        (["serve", "group_size"], "unexpected argument 'group_size'"),
        (["serve", "--env.group_size", "many"], "env.group_size: .*got 'many'"),
        (["serve", "--env.extra_body", '{"a": 1, "a": 2}'], '--env.extra_body, .*once, got "a" again\n.*remove one'),
        (["serve", "--slurm", "perhaps"], "expected true or false for slurm, got 'perhaps'"),
        (["serve", "--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_near(words, message):
    with pytest.raises(ConfigError, match=message):
        parse(Env, words)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"environment": {}}, "unknown key 'environment'"),
        ({"env": {"max_agent_turn": 3}}, "did you mean 'max_agent_turns'"),
        ({"openai": {"base_ulr": "x"}}, "did you mean 'base_url'"),
        ({"env": [1]}, "expected a mapping as env"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_too(tmp_path, values, message):
    with pytest.raises(ConfigError, match=message):
        parse(Env, ["serve", "--config", write_yaml(tmp_path, values)])


def test_the_displayed_config_can_be_loaded_again_and_contains_no_key(tmp_path):
    got = parse(Env, ["serve", "--openai.api_key", "sk-secret", "--env.group_size", "9"])
    text = render_config(got)
    assert "sk-secret" not in text
    path = tmp_path / "again.yaml"
    path.write_text(text)
    assert parse(Env, ["serve", "--config", str(path)]).env == got.env


def test_slurm_makes_a_server_of_every_port_of_the_inference_nodes():
    from hermes_atropos.model_servers.server_list import server_list

    environ = {"SLURM_JOB_NODELIST": "n[1-3]", "NUM_TRAINING_NODES": "1", "INFER_TP": "4"}
    made = server_list(
        [server(model_name="m")], slurm=True, environ=environ, host_names=lambda _nodes: ["n1", "n2", "n3"]
    )
    assert [s.base_url for s in made] == [f"http://n{node}:{port}/v1" for node in (2, 3) for port in (9000, 9001)]
    assert {s.model_name for s in made} == {"m"}
    with pytest.raises(ConfigError, match="got no SLURM_JOB_NODELIST"):
        server_list([server()], slurm=True, environ={})


def test_testing_needs_no_server(tmp_path):
    class Tested(Env):
        model = None

    main(Tested, ["process", "--testing", *arguments(tmp_path)])
    assert len(lines(tmp_path / "g.jsonl")) == 1


def arguments(tmp_path, **fields):
    values = {
        "data_path_to_save_groups": str(tmp_path / "g.jsonl"),
        "total_steps": 1,
        "tool_call_parser": "None",
        "plugins": ('{"allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"]}'),
        **fields,
    }
    return [word for name, value in values.items() for word in (f"--env.{name}", str(value))]


def test_process_writes_groups(tmp_path, capsys):
    main(Env, ["process", *arguments(tmp_path)])
    assert len(lines(tmp_path / "g.jsonl")[0]["tokens"]) == 3
    assert "group_size: 3" in capsys.readouterr().out


def test_evaluate_runs_and_leaves_its_configuration(tmp_path):
    folder = tmp_path / "evals"
    main(Env, ["evaluate", *arguments(tmp_path, data_dir_to_save_evals=folder)])
    assert yaml.safe_load((folder / "evaluate_config.yaml").read_text())["env"]["group_size"] == 3
    assert not (tmp_path / "g.jsonl").exists()


def test_an_error_is_one_line_with_what_to_do(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(Env, ["serve", "--env.group_sise", "4"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("puzzle: env: unknown key 'group_sise'")


def test_help_lists_every_field(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(Env, ["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert all(f"--env.{name}" in out for name in HermesAgentEnvConfig.model_fields)


async def test_serve_runs_from_a_command_line(tmp_path):
    import asyncio

    from hermes_atropos.command import run

    async with api_with_trainer(batch_size=3) as (api, trainer):
        words = arguments(tmp_path, rollout_server_url=api.url, ensure_scores_are_not_same=False)
        task = asyncio.create_task(run(Env, parse(Env, ["serve", *words])))
        (group,) = await trainer.batch()
        await asyncio.wait_for(task, 60)
    assert len(group["tokens"]) == 3


def test_the_command_is_a_method_of_the_class(tmp_path):
    Env.cli(["process", *arguments(tmp_path)])
    assert len(lines(tmp_path / "g.jsonl")) == 1
    assert issubclass(Env, HermesAgentBaseEnv)


def test_displayed_and_reported_configs_contain_no_secret_of_any_option(tmp_path, monkeypatch):
    options = {"python": "python3", "tokn": "m4rk3r-m4rk3r"}
    settings = {
        "backend_options": options,
        "sandbox": {"env": {"A": "m4rk3r-m4rk3r"}},
        "extra_body": {"api_key": "m4rk3r-m4rk3r"},
        "use_wandb": True,
    }
    servers = {"base_url": "http://me:m4rk3r-m4rk3r@host/v1", "api_key": "m4rk3r-m4rk3r"}
    got = parse(Env, ["serve", "--config", write_yaml(tmp_path, {"env": settings, "openai": servers})])
    text = render_config(got)
    assert "m4rk3r-m4rk3r" not in text
    assert "python: python3" in text
    assert "host/v1" in text
    sent = []
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **values: sent.append(values)))
    env = Env(got.env, got.servers, testing=True)
    env.begin_wandb()
    assert sent[0]["config"]["backend_options"] == {"python": "python3", "tokn": "(withheld)"}
    assert "m4rk3r-m4rk3r" not in repr(sent)


@pytest.mark.parametrize(
    "values",
    [
        {"env": {"sandbox": {"env": {"A": ["m4rk3r-m4rk3r"]}}}},
        {"env": {"backend_options": "token=m4rk3r-m4rk3r"}},
        {"env": {"sandbox": "env A=m4rk3r-m4rk3r"}},
        {"openai": {"api_key": ["m4rk3r-m4rk3r"]}},
        {"openai": {"base_url": ["http://me:m4rk3r-m4rk3r@host"]}},
    ],
)
def test_what_is_wrong_in_the_file_is_named_without_its_secrets(tmp_path, values):
    with pytest.raises(ConfigError) as caught:
        parse(Env, ["serve", "--config", write_yaml(tmp_path, values)])
    assert "m4rk3r-m4rk3r" not in "".join(traceback.format_exception(caught.value))
