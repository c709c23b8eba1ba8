"""Contract tests: what atroposlib 0.4.0 does by itself (shared reference 4, by number), and that ours does not.

Each first shows the defect on bare atroposlib. A test of the kind `bare_…` that fails means that atroposlib has
changed and the guard beside it may go.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from aiohttp import web
from bare_atropos import BareEnv, NoTokenizer, answering, group_with_score

from hermes_atropos import compat
from hermes_atropos.groups.grouping import Limits, group_of, refusal
from hermes_core.contracts.errors import ConfigError

REPORT = """
import json, logging, sys
print(json.dumps({"wandb": "wandb" in sys.modules, "level": logging.getLevelName(b.logger.level)}))
"""


@pytest.fixture
def tokenizers(monkeypatch):
    fake = NoTokenizer()
    monkeypatch.setattr(compat._base, "AutoTokenizer", fake)
    return fake


def after(code):
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-c", code + REPORT]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return json.loads(answer.stdout.splitlines()[-1])


def test_16_bare_atroposlib_imports_wandb_and_shouts_at_debug_level():
    code = "import atroposlib.envs.base as b"
    assert after(code) == {"wandb": True, "level": "DEBUG"}


def test_16_ours_imports_wandb_when_it_is_used_and_leaves_the_log_level_alone():
    code = "import hermes_atropos.config; import atroposlib.envs.base as b"
    assert after(code) == {"wandb": False, "level": "NOTSET"}
    assert after(f"{code}; assert callable(b.wandb.init)")["wandb"]


def test_without_atroposlib_the_error_says_what_to_install():
    code = "import sys; sys.modules['atroposlib'] = None; import hermes_atropos as a; a.HermesAgentBaseEnv"
    answer = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install hermes-atropos" in answer.stderr


def test_the_package_itself_imports_nothing_of_atroposlib():
    code = "import sys; import hermes_atropos; assert not any(name.startswith('atroposlib') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_16_bare_atroposlib_loads_a_tokenizer_by_its_network_name_at_construction(tokenizers):
    BareEnv()
    assert tokenizers.asked == ["NousResearch/DeepHermes-3-Llama-3-3B-Preview"]


def test_16_a_tokenizer_that_cannot_be_loaded_is_one_clear_message(tmp_path):
    with pytest.raises(ConfigError, match=r"tokenizer_name: .*cannot be loaded(.|\n)*--env\.tokenizer_name FOLDER"):
        compat.load_tokenizer(str(tmp_path))


async def test_12_bare_grouping_loses_logprobs_and_ours_keeps_every_optional_field(tokenizers):
    item = group_with_score(
        inference_logprobs=[1.0, -0.5, -0.25],
        ref_logprobs=[0.0, 0.1, 0.2],
        advantages=[0.0, 1.0, 1.0],
        distill_token_ids=[[1], [2], [3]],
        distill_logprobs=[[0.1], [0.2], [0.3]],
        messages=[{"role": "user", "content": "x"}],
        overrides={"weight": 1.0},
        images="picture",
    )

    async def collect(_item):
        return dict(item)

    bare, _ = await BareEnv(collect=collect).collect_trajectories({})
    lost = {key for key in item if key not in bare}
    assert lost == {"inference_logprobs", "distill_token_ids", "distill_logprobs"}
    ours = group_of([dict(item)] * 3, group_size=3)
    assert {key: ours[key] for key in item} == {key: [value] * 3 for key, value in item.items()}


async def test_12_bare_grouping_turns_absent_fields_into_empty_lists_and_ours_into_none(tokenizers):
    async def collect(_item):
        return group_with_score()

    bare, _ = await BareEnv(collect=collect).collect_trajectories({})
    assert (bare["advantages"], bare["images"]) == ([], [])
    ours = group_of([group_with_score()], group_size=1)
    assert (ours["advantages"], ours["images"], ours["inference_logprobs"]) == (None, None, None)


async def test_12_one_failure_fails_a_bare_group_while_its_siblings_run_on(tokenizers):
    finished, gate, began = [], asyncio.Event(), asyncio.Event()

    async def collect(item):
        if not began.is_set():
            began.set()
            raise RuntimeError("first")
        await gate.wait()
        finished.append(1)
        return group_with_score()

    with pytest.raises(RuntimeError, match="first"):
        await BareEnv(collect=collect).collect_trajectories({})
    gate.set()
    siblings = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*siblings)
    assert len(finished) == 2


async def test_12_none_from_one_rollout_fails_a_bare_group(tokenizers):
    async def collect(_item):
        return None

    with pytest.raises(ValueError, match="must return a ScoredDataItem"):
        await BareEnv(collect=collect).collect_trajectories({})


async def test_12_bare_sending_fails_on_group_overrides_that_are_none(tokenizers):
    env = BareEnv()
    group = {
        **group_with_score(),
        "tokens": [[1]] * 3,
        "masks": [[1]] * 3,
        "scores": [0.0, 1.0, 0.5],
        "group_overrides": None,
    }
    with pytest.raises(AttributeError):
        await env.handle_send_to_api(group, do_send_to_api=False)
    assert compat.declared_group_size(group, 3) == 3
    assert compat.declared_group_size({"group_overrides": {"group_size": 2}}, 3) == 2


async def test_8_bare_managed_server_takes_no_parser():
    manager = importlib.import_module("atroposlib.envs.server_handling.server_manager").ServerManager
    assert "tool_call_parser" not in inspect.signature(manager.managed_server).parameters


async def test_19_a_bare_openai_server_samples_to_see_whether_it_is_there(monkeypatch):
    def completion(_request):
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        )

    openai_server = importlib.import_module("atroposlib.envs.server_handling.openai_server")
    real_sleep, naps = asyncio.sleep, []

    async def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            raise asyncio.CancelledError
        await real_sleep(0)

    monkeypatch.setattr(openai_server.asyncio, "sleep", nap)
    async with answering(completion) as server:
        bare = openai_server.OpenAIServer(compat.APIServerConfig(base_url=f"{server.url}/v1", api_key="x"))
        with pytest.raises(asyncio.CancelledError):
            await bare.check_server_status_task()
        await bare.openai.close()
        assert naps == [1, 1, 1]
        assert [path for path, _ in server.seen] == ["/v1/chat/completions"] * 3


async def test_20_a_bare_openai_server_sends_a_refused_request_nine_times(monkeypatch):
    kind = importlib.import_module("atroposlib.envs.server_handling.openai_server").OpenAIServer
    from tenacity import RetryError, wait_none

    for method in (kind.chat_completion, kind._chat_comp):
        monkeypatch.setattr(method.retry, "wait", wait_none())

    async with answering(lambda _request: web.json_response({"error": "context too long"}, status=400)) as server:
        config = compat.APIServerConfig(base_url=f"{server.url}/v1", api_key="x", health_check=False)
        bare = kind(config)
        with pytest.raises(RetryError):
            await bare.chat_completion(messages=[{"role": "user", "content": "x"}])
        await bare.openai.close()
        assert len(server.seen) == 9


async def test_14_a_full_queue_cancels_what_a_bare_environment_has_in_flight(tokenizers):
    never, cancelled = asyncio.Event(), []

    async def collect(item):
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(item["number"])
            raise

    env = BareEnv(collect=collect)
    env.max_num_workers = 4
    env.config.batch_size = 12
    await env.add_train_workers()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    started = set(env.workers)
    env.status_dict["queue_size"] = 11
    await env.add_train_workers()
    await asyncio.wait(started - env.workers)
    assert sorted(set(cancelled)) == [1, 2, 3]
    for worker in env.workers:
        worker.cancel()
    await asyncio.gather(*env.workers, return_exceptions=True)


async def test_14_an_evaluation_cancels_what_a_bare_environment_has_in_flight(tokenizers):
    never = asyncio.Event()

    async def collect(item):
        await never.wait()

    env = BareEnv(collect=collect)
    env.max_num_workers = 4
    await env.add_train_workers()
    started = set(env.workers)
    env.config.steps_per_eval, env.curr_step = 10, 9
    env.status_dict["current_step"] = 10
    env.config.min_items_sent_before_logging = 1
    await env.env_step_checks()
    await asyncio.gather(*started, return_exceptions=True)
    assert started
    assert all(worker.cancelled() for worker in started)
    await env.eval_runner


async def test_13_bare_process_runs_one_group_at_a_time(tokenizers, monkeypatch):
    together, most = [0], [0]

    async def collect(item):
        together[0] += 1
        most[0] = max(most[0], together[0])
        await asyncio.sleep(0)
        together[0] -= 1
        return group_with_score(score=float(together[0]))

    config = compat.BaseEnvConfig(use_wandb=False, ensure_scores_are_not_same=False)
    env = BareEnv(config, collect=collect)
    env.n_groups_to_process, env.group_size_to_process = 5, 2
    env.max_token_len = 100
    monkeypatch.setattr(compat._base, "generate_html", lambda path: None)
    await env.process_manager()
    assert most == [2]


async def test_13_one_failing_group_ends_a_bare_process(tokenizers):
    async def collect(item):
        if item["number"] == 2:
            raise RuntimeError("group 2")
        return group_with_score()

    env = BareEnv(collect=collect)
    env.n_groups_to_process, env.group_size_to_process = 3, 1
    with pytest.raises(RuntimeError, match="group 2"):
        await env.process_manager()
    assert env.curr_step == 1


def test_13_bare_process_forces_wandb_on():
    source = inspect.getsource(compat.BaseEnv.get_cli_process_config_cls)
    assert 'env_config_dict_base["use_wandb"] = True' in source


async def test_17_a_bare_environment_drops_what_a_4xx_answers(tokenizers):
    async with answering(lambda _request: web.json_response({"detail": "no"}, status=422)) as server:
        env = BareEnv()
        env.config.rollout_server_url = server.url
        assert await env._send_scored_data_to_api({"tokens": [[1]]}) is None
        assert len(server.seen) == 1


async def test_17_groups_are_dropped_with_a_log_line_only_and_ours_have_a_reason(tokenizers):
    env = BareEnv()
    equal = {"tokens": [[1]] * 3, "masks": [[1]] * 3, "scores": [1.0] * 3}
    assert await env.handle_send_to_api(dict(equal), do_send_to_api=False) is None
    assert refusal(equal, Limits(group_size=3)) == "all scores are 1"
    long = {**equal, "scores": [0.0, 1.0, 2.0], "tokens": [[1] * 9] * 3, "masks": [[1] * 9] * 3}
    assert "fewer than 9 tokens, got 9" in refusal(long, Limits(group_size=3, max_token_len=9))


def test_versions_transformers_returns_a_mapping_instead_of_ids():
    class Tokenizer:
        def __init__(self, answer):
            self.answer = answer

        def apply_chat_template(self, messages, *, tokenize, **options):
            assert tokenize
            return self.answer

    assert compat.rendered_ids(Tokenizer({"input_ids": [1, 2], "attention_mask": [1, 1]}), []) == [1, 2]
    assert compat.rendered_ids(Tokenizer([1, 2]), []) == [1, 2]
