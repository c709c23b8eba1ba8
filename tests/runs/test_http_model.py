"""The HTTP path end to end: `serve-model` in one process, `run` in another; and servers that misbehave."""

from __future__ import annotations

import json
import shutil
import threading

import pytest
from chat_endpoint import server


@pytest.fixture
def served_oracle(hermes, tasks, small_task):
    """Serve the oracle over HTTP; gives the task file and the address."""
    path = tasks(small_task("one"), small_task("two"))
    arguments = ("serve-model", "oracle", "--tasks", path, "--mistake-rate", "0", "--api-key-env", "SERVER_KEY")
    with hermes.start(*arguments, env={"SERVER_KEY": "sekrit"}) as process:
        line = process.stdout.readline()
        assert line.startswith("listening on http://"), process.stderr.read()
        yield path, line.split()[-1]
        process.terminate()
        process.communicate(timeout=30)


def test_a_served_model_solves_the_tasks_over_http(hermes, served_oracle, rollouts):
    path, url = served_oracle
    command = ("run", path, "--model", url, "--model-name", "oracle", "--api-key-env", "KEY", "--group-size", "2")
    result = hermes(*command, "--out", "out", env={"KEY": "sekrit"})
    assert result.returncode == 0, result.stderr
    assert [line["reward"] for line in rollouts()] == [1.0] * 4
    assert "sekrit" not in json.dumps(rollouts())


def test_a_wrong_key_is_said_before_anything_runs(hermes, served_oracle):
    path, url = served_oracle
    result = hermes("run", path, "--model", url, "--model-name", "oracle", "--out", "out")
    assert result.returncode == 1
    assert "--api-key-env" in result.stderr
    assert "Traceback" not in result.stderr


def finished_reply(text="done"):
    message = {"role": "assistant", "content": text}
    return 200, {}, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {}}


def run(hermes, tasks, small_task, url, *extra):
    path = tasks(small_task("one"))
    return hermes("run", path, "--model", url, "--model-name", "m", "--out", "out", "--max-attempts", "1", *extra)


@pytest.mark.parametrize("models", [(500, {"detail": "no list"}), (200, {"object": "list", "data": []})])
def test_a_server_without_a_list_of_models_works_and_that_is_said(hermes, tasks, small_task, rollouts, models):
    with server(lambda count: finished_reply(), models=models) as (url, _):
        result = run(hermes, tasks, small_task, url)
    assert result.returncode == 0
    assert "Expected a list of models" in result.stderr
    assert rollouts()[0]["stop_reason"] == "final_answer"


def test_a_model_that_the_server_does_not_list_can_be_asked_for(hermes, tasks, small_task, rollouts):
    listed = (200, {"object": "list", "data": [{"id": "base"}]})
    with server(lambda count: finished_reply(), models=listed) as (url, seen):
        refused = run(hermes, tasks, small_task, url)
        assert (refused.returncode, seen) == (1, [])
        assert "--allow-unlisted-model" in refused.stderr
        assert run(hermes, tasks, small_task, url, "--allow-unlisted-model").returncode == 0
    assert (seen[0]["model"], rollouts()[0]["stop_reason"]) == ("m", "final_answer")


def test_a_rate_limit_is_waited_for_and_the_rollout_goes_on(hermes, tasks, small_task, rollouts):
    with server(lambda count: (429, {"Retry-After": "0"}, {}) if count < 3 else finished_reply()) as (url, seen):
        assert run(hermes, tasks, small_task, url).returncode == 0
    assert (len(seen), rollouts()[0]["stop_reason"]) == (3, "final_answer")


def test_a_prompt_that_does_not_fit_into_the_context_is_sent_once_and_judged(hermes, tasks, small_task, rollouts):
    body = {"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}
    with server(lambda count: (400, {}, body)) as (url, seen):
        assert run(hermes, tasks, small_task, url).returncode == 0
    outcome = rollouts()[0]
    assert (len(seen), outcome["stop_reason"], outcome["reward"]) == (1, "context_limit", 0.0)
    assert outcome["disposition"] == "score"


@pytest.mark.parametrize(("extra", "turns"), [((), 3), (("--max-truncated-replies", "2"), 2)])
def test_calls_that_the_token_limit_cuts_off_end_the_rollout_and_it_is_judged(
    hermes, tasks, small_task, rollouts, extra, turns
):
    call = {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": '{"path": "a", "con'}}
    choice = {"message": {"role": "assistant", "content": None, "tool_calls": [call]}, "finish_reason": "length"}
    reply = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 64}}
    with server(lambda count: (200, {}, reply)) as (url, seen):
        result = run(hermes, tasks, small_task, url, *extra)
    outcome = rollouts()[0]
    assert (result.returncode, outcome["stop_reason"], outcome["turns"], outcome["reward"]) == (
        *(0, "token_limit", turns, 0.0),
    )
    assert "cut off at the limit of 64 tokens" in seen[1]["messages"][-1]["content"]
    assert f"{turns} replies were cut off" in " ".join(result.stdout.split())


def test_a_server_error_ends_as_a_dropped_model_error_and_a_non_zero_exit(hermes, tasks, small_task, rollouts):
    with server(lambda count: (503, {"Retry-After": "0"}, {})) as (url, _):
        result = run(hermes, tasks, small_task, url, "--model-retries", "1")
    assert result.returncode == 1
    outcome = rollouts()[0]
    assert (outcome["stop_reason"], outcome["disposition"], outcome["reward"]) == ("model_error", "drop", None)
    assert outcome["failure"]["blame"] == "model"
    assert "--retry-failed" in result.stderr


def test_a_server_that_hangs_is_given_up_after_the_timeout_and_not_asked_again(hermes, tasks, small_task, rollouts):
    for seconds in ("0.5", "5", "40"):  # until the request came to the server
        never = threading.Event()

        def hang(count, never=never):
            never.wait(120)
            return finished_reply()

        shutil.rmtree(hermes.folder / "out", ignore_errors=True)
        with server(hang) as (url, seen):
            result = run(hermes, tasks, small_task, url, "--model-timeout", seconds)
            never.set()
        assert rollouts()[0]["failure"]["type"] == "ModelTimeoutError"
        if seen:
            break
    assert (result.returncode, len(seen)) == (1, 1)


def test_a_server_that_refuses_everything_stops_the_run_early(hermes, tasks, small_task, rollouts):
    with server(lambda count: (404, {}, {"error": "no such path"})) as (url, _):
        path = tasks(*[small_task(f"t{i}") for i in range(60)])
        command = ("run", path, "--model", url, "--model-name", "m", "--out", "out", "--max-concurrent", "4")
        result = hermes(*command)
    assert result.returncode == 2
    assert "answered none" in result.stderr
    assert len(rollouts()) < 30


def reply(content, finish, tokens):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


NO_ANSWERS = [
    *((content, "stop", 0) for content in (None, "", " \n")),
    *(("half a sente", finish, 4) for finish in ("abort", "error", "insufficient_system_resource")),
    (None, "abort", 0),
]


@pytest.mark.parametrize(("content", "finish", "tokens"), NO_ANSWERS)
def test_a_reply_that_the_model_did_not_mean_is_asked_for_again(
    hermes, tasks, small_task, rollouts, content, finish, tokens
):
    with server(lambda count: reply(content, finish, tokens) if count < 2 else finished_reply()) as (url, seen):
        result = run(hermes, tasks, small_task, url)
    assert (result.returncode, len(seen)) == (0, 2)
    outcome = rollouts()[0]
    assert (outcome["stop_reason"], outcome["messages"][-1]["content"]) == ("final_answer", "done")


def test_a_server_that_answers_nothing_else_gives_no_reward(hermes, tasks, small_task, rollouts):
    with server(lambda count: reply("", "stop", 0)) as (url, _):
        result = run(hermes, tasks, small_task, url, "--model-retries", "0")
    outcome = rollouts()[0]
    assert (result.returncode, outcome["reward"], outcome["disposition"]) == (1, None, "drop")
    assert "and 0 sampled tokens" in outcome["failure"]["message"]


@pytest.mark.parametrize(("content", "tokens"), [("", 1), (None, 1), ("\n\n", 2)])
def test_a_model_that_says_nothing_is_judged_and_the_summary_says_so(
    hermes, tasks, small_task, rollouts, content, tokens
):
    with server(lambda count: reply(content, "stop", tokens)) as (url, seen):
        result = run(hermes, tasks, small_task, url)
    outcome = rollouts()[0]
    assert (len(seen), outcome["stop_reason"], outcome["reward"]) == (1, "final_answer", 0.0)
    assert outcome["counters"]["empty_replies"] == 1
    assert "1 rollout ended with a reply without text or calls" in result.stdout + result.stderr


def without_count(answer, **choice):
    status, headers, body = answer
    body["choices"][0].update(choice)
    return status, headers, {**body, "usage": {"prompt_tokens": 0, "completion_tokens": 0}}


JUDGED = {
    "a server that does not count": without_count(reply("", "stop", 0)),
    "a filter": reply("something bad", "content_filter", 4),
    "a call that cannot be read": without_count(reply("", "error", 0), native_finish_reason="MALFORMED_FUNCTION_CALL"),
    "a full context": reply("", "length", 0),
}


@pytest.mark.parametrize("answer", JUDGED.values(), ids=JUDGED)
def test_what_a_model_can_bring_about_itself_is_judged_at_once(hermes, tasks, small_task, rollouts, answer):
    with server(lambda count: answer) as (url, seen):
        run(hermes, tasks, small_task, url)
    assert (len(seen), rollouts()[0]["reward"]) == (1, 0.0)
