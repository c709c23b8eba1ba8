"""Streams of a real vLLM: the recording proxy passes them on byte for byte, and parsers read their deltas."""

from __future__ import annotations

import json

import aiohttp
import pytest
from families import FAMILIES
from wire_tap import tapping

from hermes_core.discovery import PluginSettings, load_plugins
from hermes_tokens import RecordingProxy
from hermes_tokens.audit.recording_proxy import recording

TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TERMINAL = {"type": "function", "function": {"name": "terminal", "parameters": PARAMETERS}}
MESSAGES = [{"role": "user", "content": "Say something."}]
REQUESTS = {
    "/v1/chat/completions": {
        "messages": MESSAGES, "max_tokens": 12, "logprobs": True, "return_token_ids": True,
        "stream_options": {"include_usage": True},
    },
    "/v1/completions": {"prompt": "Say", "max_tokens": 12, "return_token_ids": True},
    "/v1/responses": {"input": "Say something.", "max_output_tokens": 12},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 12},
    "/inference/v1/generate": {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 12, "logprobs": 0}},
}  # fmt: skip


@pytest.fixture
def engine(engines):
    """An idle engine that also parses calls at its chat protocol."""
    found = engines.serve(FAMILIES["qwen3"], *TOOLS)
    assert found.becomes_idle(), "a test before this one has left requests in the engine"
    return found


async def post(url, body):
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        data = await answer.read()
        assert answer.status == 200, data
        return data


def events(body):
    """Return the values of a stream of events."""
    texts = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return [json.loads(text) for text in texts if text != b"[DONE]"]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("path", REQUESTS)
async def test_what_passes_the_recording_proxy_is_what_the_engine_sends(engine, tmp_path, path, streams):
    log = tmp_path / "wire.jsonl"
    body = {"model": engine.model_name, "stream": streams, **REQUESTS[path]}
    if not streams:
        body.pop("stream_options", None)
    async with tapping(engine.url) as tap, recording(RecordingProxy(tap.url, log)) as url:
        found = await post(url + path, body)
    assert tap.bodies() == [found]
    assert (len(events(found)) > 1) == streams
    choices = [
        choice for value in (events(found) if streams else [json.loads(found)]) for choice in value.get("choices", ())
    ]
    sampled = [token for choice in choices for token in choice.get("token_ids") or ()]
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    if path in {"/v1/chat/completions", "/inference/v1/generate"}:
        (line,) = lines
        assert (line["ids"], line["status"], line["aborted"]) == (sampled, 200, False)
        assert len(line["logprobs"]) == len(sampled) > 0
        assert line["finish_reason"] in {"stop", "length"}


async def deltas_of(engine, expression):
    """Return a text that fits an expression in the pieces in which the engine streams it."""
    body = {
        "model": engine.model_name, "prompt": "Call", "max_tokens": 400, "stream": True,
        "skip_special_tokens": False, "structured_outputs": {"regex": expression},
    }  # fmt: skip
    choices = [value["choices"][0] for value in events(await post(f"{engine.url}/v1/completions", body))]
    assert choices[-1]["finish_reason"] == "stop"
    return [choice["text"] for choice in choices]


# Not `family`: all of them are written by one model, which is not changed for it.
@pytest.mark.parametrize("writing", FAMILIES.values(), ids=FAMILIES)
async def test_a_parser_fed_with_the_engines_deltas_reads_what_it_reads_in_the_whole_text(engine, writing):
    parser = load_plugins(PluginSettings(), environ={}).create("parser", writing.parser, {})
    for command in ("echo [a-z]{1,8}", 'echo [^\\\\"<>|{}\\n]{3,12}'):
        deltas = await deltas_of(engine, writing.calls(command))
        assert len(deltas) > 8
        whole = parser.parse("".join(deltas), [TERMINAL])
        assert [call.name for call in whole.calls] == ["terminal"]
        stream = parser.stream([TERMINAL])
        told = [event for delta in deltas for event in stream.feed(delta)]
        told += stream.finish()
        assert stream.result() == whole
        assert [event.call for event in told if event.call] == list(whole.calls)
