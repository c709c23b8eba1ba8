"""Every field of `AgentEnv`'s configuration changes something that can be seen from outside, or is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from agent_envs import NotesEnv, agent_config, agent_env, call_of, copying, responses, run_one, script
from aiohttp import web
from atropos_envs import PLUGINS, ChatDouble, says

from hermes_atropos.agent import agent
from hermes_atropos.agent.config import OWNERS
from hermes_atropos.agent.env import AgentEnvConfig
from hermes_atropos.command import parse, render_config
from hermes_core.contracts.errors import ConfigError, PluginError
from hermes_core.contracts.rollout import StopReason

POOLS = {**PLUGINS, "extra": [*PLUGINS["extra"], "agent_backends"]}
HERMES_AGENT = {
    "tool_pool_mode": "nomad",
    "allow_network": True,
    "require_sandbox": False,
    "require_stateful_sandbox": False,
    "tool_batch_window_ms": 20,
    "tool_max_batch_size": 200,
    "nomad_address": "http://localhost:4646",
    "sandbox_job_id": "atropos-sandbox-agent-env",
    "sandbox_image": "atropos-sandbox:local",
    "slots_per_container": 10,
    "min_containers": 1,
    "max_containers": 10,
    "privileged": False,
    "acquire_timeout_s": 30.0,
    "purge_job_on_start": False,
    "purge_job_on_shutdown": True,
    "agent_max_steps": 50,
    "agent_temperature": 0.7,
    "agent_max_tokens": None,
    "agent_tool_delay_s": 0.0,
    "enabled_toolsets": ["default"],
    "disabled_toolsets": [],
    "tool_server_url": None,
    "tool_server_token": None,
    "driver": "docker",
    "singularity_image": None,
    "modal_app_name": "atropos-sandbox",
    "modal_image": "python:3.11",
    "modal_gpu": None,
    "modal_cpu": 1.0,
    "modal_memory": 2048,
    "modal_slots_per_sandbox": 10,
    "modal_min_sandboxes": 1,
    "modal_max_sandboxes": 5,
    "modal_idle_timeout": 120,
    "modal_max_lifetime": 3600,
    "modal_acquire_timeout": 60,
    "modal_execution_timeout": 30,
    "modal_secrets": "",
    "modal_env_vars": "",
    "modal_workspace_base": "/data",
}


@pytest.mark.parametrize(("field", "default"), HERMES_AGENT.items())
def test_a_field_of_hermes_agent_keeps_its_name_and_default(field, default):
    assert getattr(AgentEnvConfig(), field) == default


def other(field):
    """Return another value than the default."""
    default = HERMES_AGENT[field]
    if field == "driver":
        return "singularity"
    if default is None or isinstance(default, str):
        return "other"
    return not default if isinstance(default, bool) else default + 1


@pytest.mark.parametrize(("field", "owner"), [(field, owner) for field in OWNERS for owner in OWNERS[field]])
async def test_a_field_of_a_slot_pool_is_an_option_of_its_backend(field, owner):
    assert (await request_of(tool_pool_mode=owner, **{field: other(field)}))["options"] == {
        field.removeprefix("modal_"): other(field)
    }


@pytest.mark.parametrize(("field", "owner"), [(field, owner) for field in OWNERS for owner in OWNERS[field]])
def test_a_field_of_a_slot_pool_beside_another_backend_names_the_package(field, owner):
    with pytest.raises(
        ConfigError,
        match=rf"expected tool_pool_mode .*{owner}.* with "
        f"{field}.*\n.*hermes-backend-{owner}",
    ):
        agent_config(**{field: other(field)})


async def request_of(**fields):
    """Return the request to the backend of a pool."""
    outcome, _, _ = await run_one(copying, plugins=POOLS, **fields)
    return json.loads(outcome.failure.message)


async def test_the_image_goes_to_any_backend_that_runs_images():
    assert (await request_of(tool_pool_mode="docker", sandbox_image="mine:1"))["image"] == "mine:1"
    assert (await request_of(tool_pool_mode="docker"))["image"] is None
    assert (await request_of(tool_pool_mode="nomad", sandbox_image="mine:1"))["options"] == {"sandbox_image": "mine:1"}


@pytest.mark.parametrize(
    ("fields", "network", "isolation"),
    [
        ({}, "full", None),
        ({"allow_network": False}, "none", "container"),
        ({"require_sandbox": True}, "full", "container"),
        ({"require_stateful_sandbox": True}, "full", "container"),
        ({"require_sandbox": True, "sandbox": {"isolation": "gvisor"}}, "full", "gvisor"),
    ],
)
async def test_network_and_isolation_are_requested_from_the_backend(fields, network, isolation):
    found = await request_of(tool_pool_mode="docker", **fields)
    assert (found["network"], found["isolation"]) == (network, isolation)


@pytest.mark.component("bwrap")
async def test_without_network_a_command_has_none():
    show = script(call_of("terminal", command="ls /sys/class/net; cat /proc/net/dev | wc -l"), "done")
    outcome, _, _ = await run_one(show, allow_network=False)
    assert outcome.provenance["sandbox"]["network"] == "none"
    assert outcome.provenance["sandbox"]["isolation"] == "bwrap"


async def test_a_pool_that_is_not_installed_names_its_package():
    env = agent_env(ChatDouble(copying), tool_pool_mode="nomad")
    with pytest.raises(PluginError, match=r"pip install hermes-backend-nomad, or set tool_pool_mode: local"):
        await env.setup()
    await env.aclose()


def test_renamed_fields_are_errors_with_the_new_name():
    with pytest.raises(ConfigError, match="set agent_max_steps"):
        agent_config(max_agent_turns=3)
    with pytest.raises(ConfigError, match="set tool_pool_mode"):
        agent_config(terminal_backend="docker")
    with pytest.raises(ConfigError, match="parses <tool_call> itself"):
        agent_config(tool_call_parser="hermes")


def test_an_unknown_key_names_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"did you mean 'agent_max_steps'\?"):
        agent_config(agent_max_step=3)


@pytest.mark.parametrize("mode", ["local", "nomad", "modal", "docker"])
def test_the_whole_configuration_as_it_is_shown_can_be_given_back(mode, tmp_path):
    path = tmp_path / "shown.yaml"
    first = parse(NotesEnv, ["process", "--env.tool_pool_mode", mode, "--env.agent_max_steps", "7"])
    path.write_text(render_config(first))
    second = parse(NotesEnv, ["process", "--config", str(path)])
    assert second.env == first.env


async def test_the_steps_are_bounded():
    outcome, _, model = await run_one(script(call_of("terminal", command="true")), agent_max_steps=3)
    assert (outcome.stop_reason, len(model.requests)) == (StopReason.MAX_TURNS, 3)


async def test_temperature_and_tokens_go_into_the_request():
    _, _, model = await run_one(copying)
    assert model.requests[0].sampling["temperature"] == 0.7
    assert "max_tokens" not in model.requests[0].sampling, "the server decides"
    _, _, model = await run_one(copying, agent_temperature=0.2, agent_max_tokens=99)
    assert (model.requests[0].sampling["temperature"], model.requests[0].sampling["max_tokens"]) == (0.2, 99)


async def test_what_the_config_says_of_sampling_wins():
    fields = {"sampling": {"max_tokens": 5, "top_p": 0.5}, "extra_body": {"temperature": 0.9}}
    _, _, model = await run_one(copying, **fields, agent_max_tokens=99)
    assert model.requests[0].sampling == {"temperature": 0.9, "max_tokens": 5, "top_p": 0.5}


async def test_there_is_a_pause_between_two_calls_and_none_before_the_first(monkeypatch):
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("hermes_atropos.agent.agent_run.pause", pause)
    three = script(call_of("terminal", command="true") * 2, call_of("terminal", command="true"), "done")
    await run_one(three, agent_tool_delay_s=0.25)
    assert pauses == [0.25, 0.25]
    pauses.clear()
    await run_one(three)
    assert pauses == []


async def test_a_pause_is_waited():
    await agent.pause(0.001)
    await agent.pause(0)


async def test_the_metadata_of_results_is_shown_on_request():
    seen = script(call_of("terminal", command="exit 4"), "done")
    outcome, _, _ = await run_one(seen)
    assert "metadata" not in responses(outcome.messages[3]["content"])[0]
    outcome, _, _ = await run_one(seen, agent_tool_metadata=True)
    assert responses(outcome.messages[3]["content"])[0]["metadata"] == {"exit_code": 4}


async def tools_of(**fields):
    outcome, _, _ = await run_one(script("done"), **fields)
    listed = outcome.messages[0]["content"].partition("<tools>")[2].partition("</tools>")[0]
    return [tool["name"] for tool in json.loads(listed)]


async def test_toolsets_are_offered_and_taken_away():
    assert set(await tools_of()) == {"terminal", "process", "read_file", "write_file"}
    assert set(await tools_of(enabled_toolsets=["file"])) == {"patch", "read_file", "search_files", "write_file"}
    assert set(await tools_of(disabled_toolsets=["filesystem"])) == {"terminal", "process"}


async def test_a_distribution_is_drawn_for_each_group():
    drawn = {
        tuple(await tools_of(enabled_toolsets=None, distribution="development", seed=seed)) for seed in (0, 2, 4, 7)
    }
    assert len(drawn) > 1


async def test_tools_outside_the_sandbox_are_offered_where_something_runs_them():
    fields = {"enabled_toolsets": ["default", "postcard"], "plugins": POOLS}
    assert "postcard" not in await tools_of(**fields)
    assert "postcard" in await tools_of(**fields, tool_server_url="inprocess")
    outcome, _, _ = await run_one(script(call_of("postcard"), "done"), **fields, tool_server_url="inprocess")
    assert responses(outcome.messages[3]["content"])[0]["output"] == "sent"


class ToolServer:
    """hermes-agent's tool server with one tool."""

    def __init__(self, token=None):
        self.token = token
        self.executed = []
        self.counts = Counter()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/tools", self.tools)
        app.router.add_post("/execute", self.execute)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    def refused(self, request):
        wanted = None if self.token is None else f"Bearer {self.token}"
        return wanted is not None and request.headers.get("Authorization") != wanted

    async def tools(self, request):
        if self.refused(request):
            return web.json_response({"detail": "no"}, status=403)
        parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
        function = {"name": "web_search", "description": "Asks.", "parameters": parameters}
        return web.json_response([{"type": "function", "function": function}])

    async def execute(self, request):
        body = await request.json()
        self.executed.append(body)
        if body["tool"]["arguments"]["q"] == "crash":
            return web.Response(status=500, text="crashed")
        return web.json_response({"success": True, "output": "an answer", "error": None, "metadata": {"n": 1}})


async def test_a_tool_servers_tools_are_offered_and_run_there():
    calls = call_of("web_search", q="why") + call_of("web_search", q="crash")
    async with ToolServer(token="t") as served:
        fields = {"tool_server_url": served.url, "tool_server_token": "t"}
        assert "web_search" in await tools_of(**fields)
        assert "web_search" not in await tools_of(**fields, disabled_toolsets=["web"])
        outcome, _, _ = await run_one(script(calls, "done"), **fields)
    good, bad = responses(outcome.messages[3]["content"])
    assert (good["success"], good["output"]) == (True, "an answer")
    assert "status 500: crashed" in bad["error"]
    assert [body["tool"]["arguments"]["q"] for body in served.executed] == ["why", "crash"], "nothing is sent twice"
    assert served.executed[0]["trajectory_id"] == outcome.rollout_id


async def test_a_tool_server_that_refuses_or_is_not_there_is_an_error_at_the_start():
    async with ToolServer(token="t") as served:
        with pytest.raises(ConfigError, match="status 403"):
            await run_one(copying, tool_server_url=served.url, tool_server_token="wrong")
        url = served.url
    with pytest.raises(ConfigError, match="expected a tool server at"):
        await run_one(copying, tool_server_url=url)
    with pytest.raises(ConfigError, match="set tool_server_url"):
        agent_config(tool_server_token="t")


def run_without(module, **fields):
    """Run one rollout in a separate process in which one module cannot be imported."""
    program = Path(__file__).parents[1] / "support" / "rollout_without.py"
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, str(program), module, json.dumps(fields)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environ)


def test_an_environment_that_runs_its_tools_itself_needs_no_tool_services():
    done = run_without("hermes_tool_services", tool_server_url="inprocess")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["reward"] == 1.0
    assert "hermes_atropos" in found["imported"]
    assert "hermes_tool_services" not in found["imported"]


@pytest.mark.parametrize("key", ["tool_server_url", "tool_executor_url"])
def test_an_address_of_tools_without_the_client_names_the_key_and_the_extra(key):
    done = run_without("hermes_tool_services", **{key: "http://127.0.0.1:9"})
    assert f"ConfigError: {key}: " in done.stderr
    assert "pip install 'hermes-atropos[tool-services]'" in done.stderr


def test_what_is_missing_inside_of_the_clients_package_is_not_taken_for_the_package():
    module = "hermes_tool_services.tool_server.client"
    done = run_without(module, tool_server_url="http://127.0.0.1:9")
    assert f"ModuleNotFoundError: No module named '{module}'" in done.stderr.splitlines()[-1]
    assert "tool-services" not in done.stderr


@pytest.mark.parametrize(
    "field",
    [
        {"allow_network": False},
        {"require_sandbox": True},
        {"require_stateful_sandbox": True},
        {"sandbox_image": "mine:1"},
        {"backend_options": {"x": 1}},
        {"sandbox": {"pids": 9}},
        {"tool_pool_mode": "nomad", "slots_per_container": 3},
        {"distribution": "default", "enabled_toolsets": None},
    ],
)
def test_what_an_executor_decides_is_not_taken_and_ignored(field):
    with pytest.raises(ConfigError, match="cannot be set together with tool_executor_url"):
        agent_config(tool_executor_url="http://127.0.0.1:9", **field)


def test_tokens_are_not_render_config():
    line = ["--env.tool_server_url", "http://a", "--env.tool_server_token", "s3cret"]
    line += ["--env.tool_executor_url", "http://b", "--env.tool_executor_token", "s3cret"]
    assert "s3cret" not in render_config(parse(NotesEnv, ["process", *line]))


async def test_own_instructions_take_the_place_of_the_built_in_ones():
    outcome, _, _ = await run_one(lambda _: says("done"), system_prompt="Be brief.")
    assert outcome.messages[0]["content"].startswith("Be brief.")


def test_every_field_of_the_configuration_is_tested_here_or_with_the_base():
    """A field that is new has to be added to the tables above."""
    own = set(AgentEnvConfig.__annotations__)
    executor = {"tool_executor_url", "tool_executor_token"}  # tested by hermes-tool-services, which has one
    assert own - set(HERMES_AGENT) == {"agent_tool_metadata", "tool_call_parser", *executor}
