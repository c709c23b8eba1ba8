"""A run against a server that only streams: used like any other, and what is cut is never judged."""

from __future__ import annotations

import json

import pytest
from chat_endpoint import server

REFUSAL = (400, {}, {"detail": "Stream must be set to true"})
WRITE = '{"path": "answer.txt", "content": "one\\n"}'


def stream(*deltas, finish=None):
    """Answer with a stream; without a `finish` it is cut."""
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    events = [{"choices": [choice]} for choice in choices]
    if finish is not None:
        events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
        events += [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}]
    lines = [*(json.dumps(event) for event in events), *(["[DONE]"] if finish is not None else [])]
    return 200, {"Content-Type": "text/event-stream"}, "".join(f"data: {line}\n\n" for line in lines).encode()


def call(arguments, **fields):
    return {"tool_calls": [{"index": 0, **fields, "function": {"name": fields.get("name"), "arguments": arguments}}]}


CALL = [call("", id="c", name="write_file"), *(call(letter) for letter in WRITE)]
TEXT = [{"content": "do"}, {"content": "ne"}]


@pytest.fixture
def run_answers(hermes, tasks, small_task, rollouts):
    """Run the task against a server that streams the answers in turn; returns its line and the requests it made."""

    def _run_answers(*answers):
        with server(lambda count: [REFUSAL, *answers][count - 1]) as (url, seen):
            command = ("run", tasks(small_task("one")), "--model", url, "--model-name", "m", "--out", "out")
            hermes(*command, "--max-attempts", "1", "--model-retries", "0")
        return rollouts()[0], seen

    return _run_answers


def test_a_server_that_only_streams_is_used_like_any_other(run_answers):
    outcome, seen = run_answers(stream(*CALL, finish="tool_calls"), stream(*TEXT, finish="stop"))
    assert (outcome["stop_reason"], outcome["reward"], outcome["final_response"]) == ("final_answer", 1.0, "done")
    assert (outcome["turns"], outcome["counters"]["completion_tokens"]) == (2, 10)
    assert [request.get("stream") for request in seen] == [None, True, True]


@pytest.mark.parametrize("deltas", [CALL, CALL[:9], TEXT, []], ids=["call", "half a call", "text", "nothing"])
def test_a_stream_that_is_cut_is_never_judged(run_answers, deltas):
    outcome, seen = run_answers(stream(*CALL, finish="tool_calls"), stream(*deltas))
    assert (outcome["stop_reason"], outcome["reward"], outcome["disposition"]) == ("model_error", None, "drop")
    assert (outcome["failure"]["type"], len(seen)) == ("ModelServerError", 3)
