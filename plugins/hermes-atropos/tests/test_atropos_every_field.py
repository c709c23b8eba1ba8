"""A row for every field of both configurations: its visible effect, or its refusal.

Fields that only `serve`, time or a slot pool show have the test that shows them in their row. A new field without a
row fails here.
"""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PLUGINS
from field_runs import FieldAgentEnv, FieldEnv, NeedyEnv, OwnCodeEnv, Place, Seen, run_process

from hermes_atropos import AgentEnvConfig, HermesAgentEnvConfig
from hermes_atropos.agent.config import OWNERS
from hermes_atropos.trainer.api import TrajectoryApi
from hermes_atropos.trainer.delivery import Delivery
from hermes_core.contracts.errors import BackendError

KINDS = {HermesAgentEnvConfig: FieldEnv, AgentEnvConfig: FieldAgentEnv}


@dataclass
class Changes:
    """Run with this value instead of `other` (the default where there is none), `look` gives something else.

    No run ends in an error of the framework, unless that is what is looked at.
    """

    value: Any
    look: Callable[[Seen], Any]
    phase: str = "chat"
    beside: Mapping[str, Any] = field(default_factory=dict)
    other: Any = None
    kind: Any = None


@dataclass
class Refused:
    """With this value there is a matching error before any rollout."""

    value: Any
    message: str
    phase: str = "chat"
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class ShownBy:
    """A test of another module shows it: it needs a trainer's API, a clock or a pool."""

    module: str
    test: str

    def source(self):
        """Return the test's source with its decorators."""
        (path,) = Path(__file__).parent.rglob(f"test_atropos_{self.module}.py")
        text = path.read_text(encoding="utf-8")
        (found,) = [node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == self.test]
        return ast.unparse(found)


def request_field(name):
    return lambda seen: seen.requests[0].get(name)


def everywhere(name):
    """Look whether every request has the field."""
    return lambda seen: {name in request for request in seen.requests} == {True}


def stop_reason(seen):
    return seen.about["stop_reason"]


def reasons(seen):
    return seen.reasons


def error(seen):
    return seen.error


def data(place, _folder):
    return str(place.data)


EFFORT = {"tokenizer_name": lambda place, _folder: place.tokenizers["effort"]}
BARE = {"tokenizer_name": lambda place, _folder: place.tokenizers["bare"]}
DATA = {"dataset_name": data}
WITHOUT_TOOLS = [name for name in PLUGINS["allow"] if name != "hermes-tools"]
LONG = {"preview_size_chars": 60}
TOLD = ShownBy("delivery", "test_the_api_is_told_what_the_config_says")
ROOM = ShownBy("room", "test_an_evaluation_takes_the_room_that_its_handling_says")
SPLITS = ShownBy("process", "test_the_default_items_are_the_datasets")

BASE: dict[str, list[Any]] = {
    "group_size": [Changes(3, lambda seen: len(seen.groups[0]["scores"]))],
    "max_num_workers": [Changes(3, lambda seen: seen.workers)],
    "max_num_workers_per_node": [Changes(3, lambda seen: seen.workers)],
    "max_eval_workers": [ShownBy("env", "test_max_eval_workers_bounds_an_evaluation")],
    "steps_per_eval": [ShownBy("serve", "test_an_evaluation_pauses_admission_and_what_is_in_flight_is_sent")],
    "max_token_length": [Changes(77, request_field("max_tokens"))],
    "eval_handling": [ROOM],
    "eval_limit_ratio": [ROOM],
    "inference_weight": [TOLD],
    "batch_size": [ShownBy("serve", "test_a_group_that_fits_in_no_batch_is_refused_at_once")],
    "max_batches_offpolicy": [ShownBy("serve", "test_a_full_queue_pauses_admission_and_what_is_in_flight_is_sent")],
    "tokenizer_name": [
        Changes(lambda place, _: place.tokenizers["plain"], lambda seen: seen.groups[0]["tokens"]),
        Changes(
            lambda place, _: place.tokenizers["effort"],
            lambda seen: seen.prompts[0],
            "vllm",
            {"reasoning_effort": "low"},
        ),
    ],
    "use_wandb": [ShownBy("command", "test_displayed_and_reported_configs_contain_no_secret_of_any_option")],
    "rollout_server_url": [ShownBy("serve", "test_an_api_that_is_not_there_is_one_clear_message")],
    "total_steps": [Changes(2, lambda seen: len(seen.groups))],
    "wandb_name": [TOLD],
    "num_rollouts_to_keep": [ShownBy("env", "test_num_rollouts_to_keep_and_per_group_bound_the_table")],
    "num_rollouts_per_group_for_logging": [ShownBy("env", "test_num_rollouts_to_keep_and_per_group_bound_the_table")],
    "ensure_scores_are_not_same": [Changes(True, reasons, beside={"group_size": 2})],
    "data_path_to_save_groups": [Changes(lambda _, folder: str(folder / "mine.jsonl"), lambda seen: seen.files)],
    "data_dir_to_save_evals": [ShownBy("command", "test_evaluate_runs_and_leaves_its_configuration")],
    "min_items_sent_before_logging": [ShownBy("serve", "test_metrics_are_reported_when_enough_was_sent")],
    "include_messages": [Changes(True, lambda seen: seen.groups[0]["messages"])],
    "min_batch_allocation": [TOLD],
    "worker_timeout": [ShownBy("serve", "test_a_group_that_takes_too_long_is_stopped_with_its_reason")],
    "thinking_mode": [
        Changes(True, request_field("reasoning")),
        Changes(True, everywhere("reasoning"), kind=OwnCodeEnv),
        Changes(True, lambda seen: seen.prompts[0], "vllm"),
    ],
    "reasoning_effort": [
        Changes("low", request_field("reasoning")),
        Changes("low", everywhere("reasoning"), kind=OwnCodeEnv),
        Changes("low", lambda seen: seen.prompts[0], "sglang", EFFORT),
        Changes("low", lambda seen: seen.prompts[0], "sglang"),
        Refused("low", "reasoning_effort: the chat template of .* reads no variable for it", "sglang", BARE),
    ],
    "max_reasoning_tokens": [
        Changes(2048, request_field("reasoning")),
        Changes(2048, everywhere("reasoning"), kind=OwnCodeEnv),
        Changes(2048, everywhere("thinking_token_budget"), "vllm", kind=OwnCodeEnv),
        Changes(2048, request_field("thinking_token_budget"), "vllm"),
        Refused(2048, "max_reasoning_tokens: .*\n.*server_type: vllm", "sglang"),
        Refused(2048, "max_reasoning_tokens: .*the protocol atropos", "atropos"),
    ],
    "custom_thinking_prompt": [
        Changes("Think first.", lambda seen: seen.system),
        Changes("Think first.", lambda seen: seen.system, "vllm"),
    ],
    "enabled_toolsets": [
        Changes(["file"], lambda seen: seen.tools),
        Changes(["file"], lambda seen: seen.system, "vllm"),
    ],
    "disabled_toolsets": [
        Changes(["file"], lambda seen: seen.tools, beside={"enabled_toolsets": ["terminal", "file"]})
    ],
    "distribution": [Changes("development", lambda seen: seen.tools, beside={"enabled_toolsets": None})],
    "max_agent_turns": [Changes(1, stop_reason)],
    "system_prompt": [
        Changes("Be brief.", lambda seen: seen.system),
        Changes("Be brief.", lambda seen: seen.system, "vllm"),
    ],
    "agent_temperature": [
        Changes(0.25, request_field("temperature")),
        Changes(0.25, request_field("temperature"), "vllm"),
    ],
    "terminal_backend": [Changes("telling", reasons, kind=NeedyEnv)],
    "terminal_timeout": [ShownBy("fields", "test_terminal_timeout_stops_a_command")],
    "terminal_lifetime": [Changes(77, reasons, beside={"terminal_backend": "telling"}, kind=NeedyEnv)],
    "dataset_name": [Changes(data, lambda seen: seen.requests[0]["messages"][-1])],
    "dataset_split": [Changes("test", lambda seen: seen.requests[0]["messages"][-1], beside=DATA)],
    "prompt_field": [Changes("other", lambda seen: seen.requests[0]["messages"][-1], beside=DATA)],
    "tool_pool_size": [ShownBy("fields", "test_tool_pool_size_bounds_the_worker_threads_of_rewards")],
    "tool_call_parser": [Changes("shouting", lambda seen: len(seen.requests), "vllm")],
    "extra_body": [
        Changes({"provider": {"order": ["a"]}}, request_field("provider")),
        Changes({"top_k": 7}, request_field("top_k"), "vllm"),
        Changes({"top_k": 7}, request_field("top_k"), "sglang"),
        Changes({"top_k": 7}, request_field("top_k"), "atropos"),
        Refused({"guided_json": {}}, "'guided_json'\n.*write structured_outputs: {json: SCHEMA}", "vllm"),
        Refused({"provider": {}}, "the protocol vllm supports, got 'provider'\n.*it supports", "vllm"),
        Refused({"provider": {}}, "the protocol sglang supports, got 'provider'\n.*it supports", "sglang"),
    ],
    "default_result_size_chars": [Changes(100, lambda seen: seen.answers, beside=LONG)],
    "turn_budget_chars": [Changes(4000, lambda seen: seen.answers, beside=LONG)],
    "preview_size_chars": [Changes(40, lambda seen: seen.answers, beside={"default_result_size_chars": 100})],
    "tool_result_overrides": [Changes({"long_text": 100}, lambda seen: seen.answers, beside=LONG)],
    "seed": [Changes(2, lambda seen: seen.tools, beside={"distribution": "development"})],
    "sampling": [
        Changes({"top_p": 0.5}, request_field("top_p")),
        Changes({"top_p": 0.5}, request_field("top_p"), "vllm"),
        Refused({"provider": {}}, "'provider'\n.*it supports", "atropos"),
    ],
    "generate_protocol": [Changes("sglang", error, "vllm")],
    "tool_call_parser_options": [
        Changes({"loud": True}, error, "vllm", {"tool_call_parser": "shouting"}),
        Refused({"loud": True}, "expected tool_call_parser with tool_call_parser_options", "vllm"),
    ],
    "chat_template_kwargs": [
        Changes({"thinking": True}, request_field("chat_template_kwargs")),
        Changes({"thinking": True}, lambda seen: seen.prompts[0], "vllm"),
    ],
    "logprobs_mode": [Changes("raw", lambda seen: seen.groups[0]["generation_params"], "vllm")],
    "allow_branches": [
        Changes(
            True,
            error,
            "vllm",
            {"tokenizer_name": lambda place, _: place.tokenizers["rewriting"]},
            other=False,
        )
    ],
    "allow_constrained": [
        Changes(
            True,
            reasons,
            "vllm",
            {"require_exact": True, "max_attempts": 1, "extra_body": {"structured_outputs": {"choice": ["done"]}}},
        )
    ],
    "require_exact": [ShownBy("fields", "test_require_exact_drops_what_is_not")],
    "failed_rollouts": [ShownBy("fields", "test_a_group_shrinks_where_the_config_says_so")],
    "lowest_reward": [ShownBy("fields", "test_a_model_that_ends_its_sandbox_gets_the_lowest_reward")],
    "max_attempts": [
        Changes(1, lambda seen: len(seen.ledger), beside={"policy": {"max_turns": "drop"}, "max_agent_turns": 1}),
        ShownBy("fields", "test_max_attempts_bounds_the_replacements"),
    ],
    "min_group_size": [ShownBy("fields", "test_min_group_size_rejects_what_shrank_too_much")],
    "policy": [Changes({"max_turns": "drop"}, reasons, beside={"max_agent_turns": 1})],
    "max_concurrent_groups": [ShownBy("process", "test_max_concurrent_groups_bounds_them")],
    "time_limit": [ShownBy("fields", "test_time_limit_ends_a_rollout")],
    "max_total_tokens": [Changes(5, stop_reason)],
    "max_tool_calls": [Changes(0, stop_reason)],
    "max_truncated_replies": [ShownBy("fields", "test_max_truncated_replies_ends_a_rollout")],
    "verifier_timeout": [ShownBy("fields", "test_verifier_timeout_ends_a_reward")],
    "backend_options": [Changes({"no_such": 1}, error, kind=NeedyEnv)],
    "sandbox": [Changes({"pids": 5}, reasons, beside={"terminal_backend": "telling"}, kind=NeedyEnv)],
    "max_sandbox_starts": [ShownBy("every_field", "test_max_sandbox_starts_bounds_the_sandboxes_being_created")],
    "plugins": [Refused({"allow": WITHOUT_TOOLS}, "hermes-tools", beside={"enabled_toolsets": ["terminal"]})],
    "ledger_path": [Changes(lambda _, folder: str(folder / "other.jsonl"), lambda seen: seen.files)],
    "api_patience": [ShownBy("serve", "test_an_api_that_is_not_there_is_one_clear_message")],
    "serve_poll_interval": [ShownBy("every_field", "test_serve_poll_interval_is_the_time_between_two_looks")],
}
ISOLATION = ShownBy("agent_fields", "test_network_and_isolation_are_requested_from_the_backend")
SERVED = ShownBy("agent_fields", "test_a_tool_servers_tools_are_offered_and_run_there")
TELLING = {"tool_pool_mode": "telling"}
AGENT: dict[str, list[Any]] = {
    **BASE,
    **{name: [ShownBy("agent_fields", "test_a_field_of_a_slot_pool_is_an_option_of_its_backend")] for name in OWNERS},
    "max_agent_turns": [Refused(3, "set agent_max_steps")],
    "terminal_backend": [Refused("docker", "set tool_pool_mode")],
    "tool_call_parser": [Refused("hermes", "which parses <tool_call> itself")],
    "tool_pool_mode": [Changes("telling", reasons)],
    "allow_network": [ISOLATION],
    "require_sandbox": [ISOLATION],
    "require_stateful_sandbox": [ISOLATION],
    "sandbox_image": [ShownBy("agent_fields", "test_the_image_goes_to_any_backend_that_runs_images")],
    "agent_max_steps": [Changes(1, stop_reason)],
    "agent_max_tokens": [Changes(99, request_field("max_tokens")), Changes(99, request_field("max_tokens"), "vllm")],
    "max_token_length": [Changes(77, request_field("max_tokens"), "vllm")],
    "agent_tool_delay_s": [
        ShownBy("agent_fields", "test_there_is_a_pause_between_two_calls_and_none_before_the_first")
    ],
    "agent_tool_metadata": [Changes(True, lambda seen: seen.answers)],
    "tool_server_url": [SERVED],
    "tool_server_token": [SERVED, Refused("t", "set tool_server_url")],
    "tool_executor_url": [ShownBy("agent_fields", "test_what_an_executor_decides_is_not_taken_and_ignored")],
    "tool_executor_token": [Refused("t", "set tool_executor_url")],
    "tool_call_parser_options": [Refused({"loud": True}, "expected tool_call_parser with tool_call_parser_options")],
    "prompt_field": [Refused("other", "expected a field of AgentEnv, got prompt_field\n.*build_task")],
    "max_attempts": [
        Changes(1, lambda seen: len(seen.ledger), beside={"policy": {"max_turns": "drop"}, "agent_max_steps": 1})
    ],
    "policy": [Changes({"max_turns": "drop"}, reasons, beside={"agent_max_steps": 1})],
    "terminal_lifetime": [Changes(77, reasons, beside=TELLING)],
    "sandbox": [Changes({"pids": 5}, reasons, beside=TELLING)],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("fields"))


def rows(config, table):
    """Give the rows of a table as parameters; what an AgentEnv inherits is the same code, and runs in the deep tier."""
    for name, listed in table.items():
        marks = [pytest.mark.slow] if config is AgentEnvConfig and listed is BASE.get(name) else []
        for row in listed:
            words = [config.__name__, name, type(row).__name__, getattr(row, "phase", "")]
            yield pytest.param(config, name, row, id="-".join(words), marks=marks)


@pytest.mark.parametrize(("config", "table"), [(HermesAgentEnvConfig, BASE), (AgentEnvConfig, AGENT)])
def test_every_field_has_a_row(config, table):
    assert set(config.model_fields) == set(table)


@pytest.mark.parametrize(("config", "name", "row"), [*rows(HermesAgentEnvConfig, BASE), *rows(AgentEnvConfig, AGENT)])
async def test_a_field_does_what_its_row_says(config, name, row, place):
    kind = row.kind if isinstance(row, Changes) and row.kind and config is HermesAgentEnvConfig else KINDS[config]
    if isinstance(row, ShownBy):
        assert name in OWNERS or re.search(rf"\b{name}\b", row.source())
    elif isinstance(row, Refused):
        seen = await run_process(place, kind, row.phase, **{**row.beside, name: row.value})
        assert re.search(row.message, seen.error)
        assert seen.requests == []
    else:
        other = {} if row.other is None else {name: row.other}
        without = await place.once(kind, row.phase, **{**row.beside, **other})
        seen = await run_process(place, kind, row.phase, **{**row.beside, name: row.value})
        assert row.look(seen) != row.look(without)
        assert row.look is error or not (seen.error or without.error)


@pytest.mark.parametrize(("limit", "together"), [(2, 2), (8, 4)])
async def test_max_sandbox_starts_bounds_the_sandboxes_being_created(limit, together, place, monkeypatch):
    opening, most, crowd = [0], [0], asyncio.Event()

    async def refuse_to_open(_self, spec):
        assert spec.rollout_id
        opening[0] += 1
        most[0] = max(most[0], opening[0])
        if opening[0] == together:
            crowd.set()
        await asyncio.wait_for(crowd.wait(), 60)
        for _ in range(20):  # one more would come now
            await asyncio.sleep(0)
        opening[0] -= 1
        raise BackendError("no")

    monkeypatch.setattr("atropos_components.TellingBackend.open", refuse_to_open)
    await run_process(
        place, NeedyEnv, max_sandbox_starts=limit, group_size=4, max_attempts=1, terminal_backend="telling"
    )
    assert most == [together]


async def test_serve_poll_interval_is_the_time_between_two_looks():
    delivery = Delivery(HermesAgentEnvConfig(serve_poll_interval=0.6), TrajectoryApi("http://127.0.0.1:9"))
    began = time.monotonic()
    await delivery.patience().wait("away", "start it")
    assert time.monotonic() - began >= 0.6
