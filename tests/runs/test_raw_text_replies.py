"""A server that returns a model's raw text: hermes-parsers finds the calls, and what cannot be read is answered."""

from __future__ import annotations

import json

import pytest
from chat_endpoint import server

WRITE = '<tool_call>\n{"name": "write_file", "arguments": {"path": "answer.txt", "content": "42"}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "write_file", "arguments": {"path": "answer.txt", "content": 42,,}}\n</tool_call>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>"
    '{"path": "answer.txt", "content": "42"}<|tool_call_end|><|tool_calls_section_end|>'
)


@pytest.fixture
def task():
    return {
        "id": "write",
        "prompt": "Write 42 to answer.txt.",
        "verifier": {"name": "file_content", "options": {"checks": [{"path": "answer.txt", "equals": "42"}]}},
    }


@pytest.fixture
def run_texts(hermes, tasks, task, rollouts):
    """Run the task against a server that gives the texts in turn; returns its line and the requests it made."""

    def _run_texts(texts, *arguments, engine="other"):
        def answer(count):
            message = {"role": "assistant", "content": texts[count - 1]}
            return 200, {}, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {}}

        with server(answer, engine=engine) as (url, requests):
            result = hermes("run", tasks(task), "--model", url, *arguments, "--out", "out")
        assert result.returncode == 0, result.stderr
        return rollouts()[0], requests

    return _run_texts


def model_flags(parser):
    return ("--model-name", "anything", "--parser", parser)


def test_calls_in_raw_text_are_made(run_texts):
    line, requests = run_texts([f"I will write it.\n{WRITE}", "done"], *model_flags("hermes"))
    assert (line["reward"], line["counters"]["tool_calls_attempted"], len(requests)) == (1.0, 1, 2)
    assistant = next(message for message in line["messages"] if message["role"] == "assistant")
    assert assistant["content"] == "I will write it."
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"path": "answer.txt", "content": "42"}


ASKED_FOR_TEXT = {
    "vllm": {"tool_choice": "none", "skip_special_tokens": False},
    "sglang": {"skip_special_tokens": False},
    "transformers": {"tool_choice": "none"},
}


@pytest.mark.parametrize("engine", list(ASKED_FOR_TEXT))
def test_an_engine_that_reads_no_calls_shows_the_tools_and_returns_text(run_texts, engine):
    """A default vLLM answered 400 to every request: "auto" tool choice requires …"""
    line, requests = run_texts([WRITE, "done"], *model_flags("hermes"), engine=engine)
    assert line["reward"] == 1.0
    assert line["provenance"]["model"]["raw_text"] == {"fields": ASKED_FOR_TEXT[engine], "tools_in_prompt": True}
    for request in requests:
        assert request["tools"]
        assert {name: request[name] for name in request if name in ASKED_FOR_TEXT["vllm"]} == ASKED_FOR_TEXT[engine]


def test_tools_that_the_server_hides_are_said_before_the_run(hermes, tasks, task):
    with server(lambda count: (500, {}, {}), engine="plain") as (url, _):
        command = ("run", tasks(task), "--model", url, *model_flags("hermes"), "--model-retries", "0", "--out", "out")
        result = hermes(*command, "--max-attempts", "1")
    assert "does not show the tools to the model" in result.stderr


def test_the_parser_is_chosen_by_the_model_s_name(run_texts):
    line, _ = run_texts([WRITE, "done"], "--model-name", "Qwen/Qwen2.5-7B-Instruct")
    assert line["reward"] == 1.0


def test_a_malformed_call_is_answered_and_counted_and_no_final_answer(run_texts):
    """Issues vllm#47761, and a defect of hermes-agent: a call that could not be read passed for the answer."""
    line, requests = run_texts([BROKEN, WRITE, "done"], *model_flags("hermes"))
    assert (line["reward"], line["counters"]["tool_parse_errors"]) == (1.0, 1)
    told = requests[1]["messages"][-1]
    assert told["role"] == "user"
    assert "invalid_json" in told["content"]


def test_a_malformed_call_beside_a_good_one_is_answered_after_the_good_one_s_result(run_texts):
    line, requests = run_texts([f"{BROKEN}\n{WRITE}", "done"], *model_flags("hermes"))
    assert (line["reward"], line["counters"]["tool_parse_errors"]) == (1.0, 1)
    roles = [message["role"] for message in requests[1]["messages"]][-3:]
    assert roles == ["assistant", "tool", "user"]
    assert "1 of your 2 tool calls" in requests[1]["messages"][-1]["content"]


def test_ids_are_unique_over_a_rollout_though_the_model_counts_anew(run_texts):
    """hermes-agent's defect: Kimi's ids repeat every turn."""
    line, requests = run_texts([KIMI, KIMI, "done"], *model_flags("kimi_k2"))
    ids = [message["tool_call_id"] for message in line["messages"] if message["role"] == "tool"]
    assert ids == ["functions.write_file:0", "functions.write_file:1"]
    assert line["reward"] == 1.0
    assert len(requests) == 3


def test_nine_characters_stay_nine(run_texts):
    """Mistral's templates refuse other ids."""
    text = '[TOOL_CALLS]write_file[CALL_ID]abcdefghi[ARGS]{"path": "answer.txt", "content": "42"}'
    line, _ = run_texts([text, text, "done"], *model_flags("mistral"))
    ids = [message["tool_call_id"] for message in line["messages"] if message["role"] == "tool"]
    assert ids[0] == "abcdefghi"
    assert ids[1] != ids[0]
    assert all(len(identity) == 9 and identity.isalnum() for identity in ids)


def test_a_call_ends_reasoning_that_never_ends(run_texts):
    line, _ = run_texts([f"<think>I will write it. {WRITE}", "done"], *model_flags("hermes"))
    assert (line["reward"], line["counters"]["tool_parse_errors"]) == (1.0, 0)


def test_a_call_that_is_only_quoted_in_reasoning_that_never_ends_is_answered(run_texts):
    line, requests = run_texts([f"<think>Shall I say `{WRITE}` now?", WRITE, "done"], *model_flags("hermes"))
    assert (line["reward"], line["counters"]["tool_parse_errors"]) == (1.0, 1)
    assert "in_reasoning" in requests[1]["messages"][-1]["content"]


def test_a_raw_call_that_no_parser_reads_is_said_in_the_summary(run_texts, hermes):
    line, _ = run_texts([WRITE], "--model-name", "a-model-nobody-knows")
    assert (line["reward"], line["counters"]["unparsed_replies"]) == (0.0, 1)
    summary = json.loads((hermes.folder / "out" / "summary.json").read_text())
    assert summary["counters"]["unparsed_replies"] == 1
    assert summary["run"]["parsers_of_unparsed_replies"][0] == "hermes"
    table = hermes("report", "out").stdout
    assert "1 reply looks like raw tool calls, and no parser was chosen: --parser hermes (or" in " ".join(table.split())


def test_a_parser_takes_options(run_texts):
    text = f"<think>I will write it. {WRITE}</think>"
    line, _ = run_texts([text, "done"], *model_flags("hermes"), "--parser-options", '{"promote_drafts": true}')
    assert line["reward"] == 1.0
