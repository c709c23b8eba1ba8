"""The embedded models: the oracle, without mistakes and with them, and doing nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from hermes_core.contracts.errors import ConfigError, ModelRequestError
from hermes_core.contracts.model import Conversation, ModelClient, ModelRequest, ToolSchemas
from hermes_core.contracts.task import Step, Task
from hermes_models.embedded.embedded import DONE
from hermes_models.embedded.nop import NopModel
from hermes_models.embedded.oracle import NO_SOLUTION, OracleModel

STEPS = (
    Step(tool="terminal", arguments={"command": "mkdir -p out && echo hello world > out/a.txt"}),
    Step(tool="write_file", arguments={"path": "out/b.txt", "content": "é\n"}),
    Step(tool="terminal", arguments={"command": "sort out/a.txt", "timeout": 5}),
)
RIGHT = [
    ("terminal", dict(STEPS[0].arguments)),
    ("write_file", dict(STEPS[1].arguments)),
    ("terminal", dict(STEPS[2].arguments)),
]


def task(task_id="t", prompt="Do it.", **fields):
    messages = fields.pop("messages", ({"role": "user", "content": prompt},))
    return Task(**{"id": task_id, "messages": messages, "solution": STEPS, **fields})


async def run_rollout(model, messages, *, rollout_id="r", seed=0, system=None):
    """Run a rollout with tools that answer 'ok'; returns the calls as (name, text) and the answer."""
    talk = Conversation([{"role": "system", "content": system}] if system else [])
    for message in messages:
        talk.append(message)
    calls = []
    while True:
        request = ModelRequest(conversation=talk, tools=ToolSchemas(), rollout_id=rollout_id, seed=seed)
        reply = await model.chat(request)
        talk.append({"role": "assistant", "content": reply.content})
        if not reply.tool_calls:
            assert reply.finish_reason == "stop"
            return calls, reply.content
        assert reply.finish_reason == "tool_calls"
        for call in reply.tool_calls:
            calls.append((call.name, call.arguments))
            talk.append({"role": "tool", "tool_call_id": call.id, "content": "ok"})


def decode_calls(calls):
    return [(name, json.loads(arguments)) for name, arguments in calls]


@pytest.mark.parametrize("model", [NopModel(), OracleModel([])])
async def test_embedded_models_are_model_clients_that_need_no_server(model):
    assert isinstance(model, ModelClient)
    await model.check()
    await model.aclose()
    assert model.provenance["protocol"] == "embedded"
    assert model.provenance["model_name"] == getattr(model, "name", None)


async def test_nop_answers_at_once_without_a_call():
    calls, answer = await run_rollout(NopModel(), task().messages)
    assert (calls, answer) == ([], "Nothing was done.")


@pytest.mark.parametrize(("answer", "final"), [("42", "42"), (None, DONE), ("", "")])
@pytest.mark.parametrize("steps", [STEPS, ()], ids=["steps", "no steps"])
async def test_without_mistakes_it_makes_one_call_a_turn_and_then_answers(steps, answer, final):
    oracle = OracleModel([task(solution=steps, answer=answer)], mistake_rate=0)
    calls, said = await run_rollout(oracle, task().messages)
    assert (decode_calls(calls), said) == (RIGHT[: len(steps)], final)


async def test_one_model_serves_many_rollouts_at_a_time():
    oracle = OracleModel([task(answer="x")], mistake_rate=0)
    results = await asyncio.gather(*(run_rollout(oracle, task().messages, rollout_id=f"r{n}") for n in range(20)))
    assert all(decode_calls(calls) == RIGHT for calls, _ in results)


EXAMPLE = (
    {"role": "system", "content": "You are careful."},
    {"role": "user", "content": "Do it."},
    {"role": "assistant", "content": "Which one?"},
    {"role": "user", "content": "The second."},
)


async def test_assistant_messages_of_the_task_itself_do_not_count_as_turns():
    calls, _ = await run_rollout(OracleModel([task(messages=EXAMPLE)], mistake_rate=0), EXAMPLE)
    assert decode_calls(calls) == RIGHT


async def test_the_oracle_without_mistakes_follows_the_solution_and_the_answer():
    oracle = OracleModel([task(answer="42"), task("u", "Something else.", solution=())], mistake_rate=0)
    calls, answer = await run_rollout(oracle, task().messages)
    assert (decode_calls(calls), answer) == (RIGHT, "42")


async def test_a_system_prompt_of_the_run_does_not_hide_the_task():
    calls, _ = await run_rollout(OracleModel([task()], mistake_rate=0), task().messages, system="Be brief.")
    assert decode_calls(calls) == RIGHT


async def test_tasks_with_the_same_first_message_are_distinguished_by_the_others():
    short, long = task("short", solution=()), task("long", messages=EXAMPLE)
    oracle = OracleModel([short, long], mistake_rate=0)
    assert decode_calls((await run_rollout(oracle, EXAMPLE))[0]) == RIGHT
    assert (await run_rollout(oracle, short.messages))[0] == []


async def test_a_prompt_in_parts_is_found_too():
    messages = ({"role": "user", "content": [{"type": "text", "text": "Look."}]},)
    calls, _ = await run_rollout(OracleModel([task(messages=messages)], mistake_rate=0), messages)
    assert decode_calls(calls) == RIGHT


@pytest.mark.parametrize("messages", [(), EXAMPLE[:1]], ids=["no message", "a system message"])
async def test_a_task_in_which_the_model_has_the_first_word_is_found_on_every_turn(messages):
    oracle = OracleModel([task(messages=messages), task("u", "Something else.", solution=())], mistake_rate=0)
    assert decode_calls((await run_rollout(oracle, messages))[0]) == RIGHT
    with pytest.raises(ModelRequestError, match="--tasks FILE"):
        await run_rollout(oracle, [*messages, {"role": "user", "content": "Who are you?"}])


async def test_two_tasks_with_one_prompt_and_two_solutions_are_an_error_that_names_both():
    oracle = OracleModel([task("a"), task("b", solution=STEPS[:1])])
    with pytest.raises(ModelRequestError, match="a, b"):
        await run_rollout(oracle, task().messages)
    same = OracleModel([task("a"), task("b")], mistake_rate=0)
    assert decode_calls((await run_rollout(same, task().messages))[0]) == RIGHT


async def test_an_unknown_conversation_is_an_error_whose_hint_is_the_task_file():
    with pytest.raises(ModelRequestError, match="--tasks FILE"):
        await run_rollout(OracleModel([task()]), [{"role": "user", "content": "Who are you?"}])


async def test_a_task_without_a_solution_is_answered_so():
    calls, answer = await run_rollout(OracleModel([task(solution=None)]), task().messages)
    assert (calls, answer) == ([], NO_SOLUTION)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_mistake_rate_is_a_probability(rate):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        OracleModel([], mistake_rate=rate)


async def test_the_same_seed_and_rollout_give_the_same_calls_and_others_differ():
    def run_all(seed, rollouts):
        oracle = OracleModel([task(answer="42")], mistake_rate=0.5, seed=seed)
        return asyncio.gather(*(run_rollout(oracle, task().messages, rollout_id=rollout) for rollout in rollouts))

    rollouts = [f"t/{index}" for index in range(40)]
    first, again, other = await run_all(1, rollouts), await run_all(1, rollouts), await run_all(2, rollouts)
    assert first == again
    assert first != other
    assert len({str(result) for result in first}) > 10


async def test_the_requests_seed_decides_so_that_another_run_with_other_ids_is_the_same():
    oracle = OracleModel([task()], mistake_rate=0.5)
    results = [await run_rollout(oracle, task().messages, rollout_id=f"a{seed}", seed=seed) for seed in range(1, 31)]
    assert results == [
        await run_rollout(oracle, task().messages, rollout_id=f"b{seed}", seed=seed) for seed in range(1, 31)
    ]
    assert len({str(result) for result in results}) > 5


def test_the_share_of_rollouts_with_mistakes_is_the_rate():
    oracle, subject = OracleModel([task()], mistake_rate=0.25), task()
    scripts = [oracle.script(subject, f"t/{index}") for index in range(2000)]
    share = sum(bool(script.mistakes) for script in scripts) / len(scripts)
    assert 0.21 < share < 0.29


def test_every_kind_of_mistake_is_made_some_put_right_and_some_not():
    oracle, subject = OracleModel([task()], mistake_rate=0.5), task(answer="42")
    scripts = [oracle.script(subject, f"t/{index}") for index in range(600)]
    kinds = Counter(kind for script in scripts for kind in script.mistakes)
    wrong_calls = {"truncated", "wrong_command", "unknown_tool", "invalid_json", "bad_argument"}
    assert set(kinds) == wrong_calls | {"skipped", "gave_up", "wrong_answer"}
    single = [script for script in scripts if len(script.mistakes) == 1 and script.mistakes[0] in wrong_calls]
    assert {len(script.turns) for script in single} == {3, 4}


def test_mistakes_are_real_calls_that_differ_from_the_right_ones():
    oracle, subject = OracleModel([task()], mistake_rate=0.5), task()
    right = {(name, json.dumps(arguments)) for name, arguments in RIGHT}
    broken = unknown = 0
    for index in range(300):
        script = oracle.script(subject, f"t/{index}")
        made = []
        for turn in script.turns:
            unknown += turn.tool not in {"terminal", "write_file"}
            try:
                made.append((turn.tool, json.dumps(json.loads(turn.arguments))))
            except ValueError:
                broken += 1
                made.append((turn.tool, turn.arguments))
        if script.mistakes:
            assert script.answer != DONE or [call for call in made if call not in right] or len(made) < 3
        else:
            assert set(made) == right
    assert broken
    assert unknown


def test_a_task_that_is_only_an_answer_is_sometimes_answered_wrong():
    oracle, subject = OracleModel([task()], mistake_rate=0.5), task(solution=(), answer="42")
    answers = Counter(oracle.script(subject, f"t/{index}").answer for index in range(100))
    assert set(answers) == {"42", "43"}


@pytest.mark.parametrize(
    "step", [Step(tool="todo", arguments={}), Step(tool="todo", arguments={"items": [1], "x": ""})]
)
def test_mistakes_can_be_made_with_any_arguments(step):
    oracle, subject = OracleModel([task()], mistake_rate=1.0), task(solution=(step,))
    for index in range(60):
        assert oracle.script(subject, f"t/{index}").mistakes
