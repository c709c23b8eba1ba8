"""Contract tests for the token path of atroposlib 0.4.0 (shared reference 4, by number), and that ours differs."""

from __future__ import annotations

import importlib
import json
import types

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from aiohttp import web
from atropos_envs import PuzzleEnv, config, server
from bare_atropos import answering
from chatml_folder import chatml_folder
from token_server import Fault, Sampled, TokenServer, serving_tokens

from hermes_atropos import compat
from hermes_core.contracts.parsing import BufferedParser, ParsedCall, ParseResult

ASKED = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "noop", "description": "x", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "noop", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return compat.load_tokenizer(str(folder))


class Scripted:
    """What stands below bare atroposlib's ManagedServer: samples texts in turn, keeps what it was asked with."""

    def __init__(self, tokenizer, *texts, finish="stop", logprobs=None):
        self.config = types.SimpleNamespace(model_name="m")
        self.tokenizer = tokenizer
        self.prompts = []
        self._texts = list(texts)
        self._finish = finish
        self._logprobs = logprobs

    async def tokens_and_logprobs_completion(self, *, input_ids, **_options):
        self.prompts.append(input_ids)
        ids = self.tokenizer.encode(self._texts.pop(0), add_special_tokens=False)
        logprobs = [-0.5] * len(ids) if self._logprobs is None else self._logprobs
        return input_ids, [ids], [logprobs], [self._finish]


def new_managed_server(scripted, **options):
    kind = importlib.import_module("atroposlib.envs.server_handling.managed_server").ManagedServer
    return kind(scripted, scripted.tokenizer, **options)


class BlockParser(BufferedParser):
    """Reads calls as this file's template writes them, between tags."""

    def render(self, message):
        raise ValueError("not written")

    def parse(self, text, tools=None, mode="strict"):
        text, *blocks = text.split("<tool_call>")
        read = [json.loads(block.partition("</tool_call>")[0]) for block in blocks]
        calls = tuple(
            ParsedCall(id=f"call_{number}", name=call["name"], arguments=json.dumps(call["arguments"]))
            for number, call in enumerate(read)
        )
        return ParseResult(content=text.strip() or None, calls=calls)


def sampling(tokenizer, *texts, finish="stop"):
    """Sample texts in turn, on a token-level server."""
    left = list(texts)

    def sample(_prompt, _sampling):
        ids = tokenizer.encode(left.pop(0), add_special_tokens=False)
        stop = ids[-1] if finish == "stop" else None
        return Sampled(ids=ids, logprobs=[-0.5] * len(ids), finish_reason=finish, stop_id=stop)

    return sample


def ours(url, folder, **fields):
    values = {"tokenizer_name": str(folder), **fields}
    return PuzzleEnv(config(**values), [server(base_url=f"{url}/v1", server_type="vllm")])


def continue_conversation(answer):
    said = {"role": "assistant", "content": answer.choices[0].message.content}
    return [*ASKED, said, {"role": "user", "content": "again"}]


def count_doubled_ends(tokenizer, ids):
    """Count close tokens that follow a close token, a line break between them or not."""
    return tokenizer.decode(ids).replace("<|im_end|>\n<|im_end|>", "<|im_end|><|im_end|>").count("<|im_end|><|im_end|>")


async def test_1_the_close_token_is_doubled_on_bare_atroposlib_with_tools_and_not_on_ours(folder, tokenizer):
    texts = ("one<|im_end|>", "two<|im_end|>")
    scripted = Scripted(tokenizer, *texts)
    bare = new_managed_server(scripted, tool_parser="hermes")
    with pytest.warns(UserWarning, match="vLLM is not installed"):
        first = await bare.chat_completion(messages=ASKED, tools=[TOOL])
    await bare.chat_completion(messages=continue_conversation(first), tools=[TOOL])
    assert count_doubled_ends(tokenizer, scripted.prompts[1]) == 1

    async with serving_tokens(TokenServer("vllm", sampling(tokenizer, *texts))) as served:
        env = ours(served.url, folder)
        async with env.server.managed_server() as session:
            first = await session.chat_completion(messages=ASKED, tools=[TOOL])
            await session.chat_completion(messages=continue_conversation(first), tools=[TOOL])
            (node,) = session.get_state()["nodes"]
        await env.aclose()
    assert count_doubled_ends(tokenizer, node.tokens) == 0


async def test_2_a_changed_history_makes_a_bare_node_that_forgets_the_turns_before(tokenizer):
    scripted = Scripted(tokenizer, "one<|im_end|>", "two<|im_end|>")
    bare = new_managed_server(scripted)
    await bare.chat_completion(messages=ASKED)
    changed = [*ASKED, {"role": "assistant", "content": "ONE"}, {"role": "user", "content": "again"}]
    await bare.chat_completion(messages=changed)
    nodes = bare.get_state()["nodes"]
    assert len(nodes) == 2
    trained = [mask for mask in nodes[-1].masked_tokens if mask != -100]
    assert tokenizer.decode(trained) == "two<|im_end|>"


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda call: call.update(tool_calls=None, content=""), "content"),
        (lambda call: call["tool_calls"][0]["function"].update(arguments='{"a": "***"}'), "tool_calls"),
        (lambda call: call["tool_calls"].pop(), "tool_calls"),
        (lambda call: call.update(content="I see."), "content"),
    ],
    ids=["emptied", "redacted", "a call less", "other text"],
)
async def test_2_a_changed_history_is_what_ours_sends_in_a_branch_that_says_so(folder, tokenizer, edit, field):
    texts = ("Two.\n" + CALL.replace("{}", '{"a": "secret"}') * 2 + "<|im_end|>", "done<|im_end|>", "more<|im_end|>")
    server_log = TokenServer("vllm", sampling(tokenizer, *texts))
    async with serving_tokens(server_log) as served:
        env = ours(served.url, folder)
        async with env.server.managed_server(tool_call_parser=BlockParser()) as session:
            first = await session.chat_completion(messages=ASKED, tools=[TOOL])
            said = first.choices[0].message.model_dump()
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in said["tool_calls"]]
            await session.chat_completion(messages=[*ASKED, said, *results], tools=[TOOL])
            assert len(session.get_state()["nodes"]) == 1
            edit(said)
            await session.chat_completion(messages=[*ASKED, said, *results], tools=[TOOL])
            nodes = session.get_state()["nodes"]
        await env.aclose()
    sent = tokenizer.decode(server_log.lines[-1]["prompt_ids"])
    assert sent.count("secret") == sum("secret" in call["function"]["arguments"] for call in said["tool_calls"] or ())
    assert ("Two." in sent) == (said["content"] == "Two.")
    assert [node.metadata["reason"].partition(":")[0] for node in nodes] == ["", "history_edited"]
    assert f"turn 0, {field} of message 1 (assistant)" in nodes[1].metadata["reason"]


def test_3_the_bare_flag_that_preserves_thinking_turns_its_protection_off(tokenizer, monkeypatch):
    protected = []

    def protect(messages):
        protected.append(messages)
        return messages

    for preserve in (False, True):
        bare = new_managed_server(Scripted(tokenizer), preserve_think_blocks=preserve)
        monkeypatch.setattr(bare, "_protect_think_blocks", protect)
        bare._convert_messages_to_prompt(ASKED)
        assert len(protected) == 1


async def test_4_bare_completions_forget_what_was_sampled_before(tokenizer):
    bare = new_managed_server(Scripted(tokenizer, "one", "two"))
    first = await bare.completion(prompt="hello")
    await bare.completion(prompt=f"hello{first.choices[0].text} and")
    (node,) = bare.get_state()["nodes"]
    trained = [mask for mask in node.masked_tokens if mask != -100]
    assert tokenizer.decode(trained) == "two"


async def test_5_and_6_bare_tool_calls_need_vllm_and_hide_that_a_turn_was_cut(folder, tokenizer):
    bare = new_managed_server(Scripted(tokenizer, CALL, finish="length"), tool_parser="hermes")
    with pytest.warns(UserWarning, match="vLLM is not installed"):
        answer = await bare.chat_completion(messages=ASKED, tools=[TOOL])
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"

    async with serving_tokens(TokenServer("vllm", sampling(tokenizer, "CALL noop", finish="length"))) as served:
        env = ours(served.url, folder, tool_call_parser="shouting")
        async with env.server.managed_server() as session:
            answer = await session.chat_completion(messages=ASKED, tools=[TOOL])
        await env.aclose()
    assert answer.choices[0].message.tool_calls[0].function.name == "noop"
    assert answer.choices[0].finish_reason == "length"


async def test_9_bare_logprobs_that_are_missing_are_made_up_and_ours_are_an_error(folder, tokenizer):
    bare = new_managed_server(Scripted(tokenizer, "one<|im_end|>", logprobs=[-0.5]))
    await bare.chat_completion(messages=ASKED)
    (node,) = bare.get_state()["nodes"]
    sampled = [logprob for logprob, mask in zip(node.logprobs, node.masked_tokens, strict=True) if mask != -100]
    assert sampled == [-0.5, *[1.0] * (len(sampled) - 1)]
    assert len(sampled) > 1

    token_server = TokenServer("vllm", sampling(tokenizer, *["one<|im_end|>"] * 9))
    token_server.set_faults(*[Fault.named("short_logprobs")] * 9)
    async with serving_tokens(token_server) as served:
        env = ours(served.url, folder, max_attempts=1, min_group_size=1, group_size=1)
        await env.setup()
        group, _ = await env.collect_trajectories(await env.get_next_item())
        await env.aclose()
    assert group is None
    assert "logprobs" in env.ledger.entries[0].reason


async def test_21_a_bare_server_that_ignores_n_is_asked_twice_for_one(tokenizer):
    def completion(_request):
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return web.json_response(answer)

    kind = importlib.import_module("atroposlib.envs.server_handling.openai_server").OpenAIServer
    async with answering(completion) as served:
        fields = {"base_url": f"{served.url}/v1", "api_key": "x", "health_check": False, "n_kwarg_is_ignored": True}
        bare = kind(compat.APIServerConfig(**fields))
        await bare.chat_completion(messages=ASKED, n=1)
        await bare.openai.close()
        assert len(served.seen) == 2
        env = PuzzleEnv(config(), [server(**fields)])
        await env.server.chat_completion(messages=ASKED, n=1)
        await env.aclose()
        assert len(served.seen) == 3
