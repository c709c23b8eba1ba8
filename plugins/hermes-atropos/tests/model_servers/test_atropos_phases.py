"""The two phases against servers on the loopback interface: chat, and token ids by each protocol."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PLUGINS, PuzzleEnv, config, lines, server
from chat_server import completion, serving_answers
from chatml_folder import TEMPLATE, chatml_folder
from token_server import Sampled, TokenServer, serving_tokens

from hermes_atropos import HermesAgentLoop
from hermes_core.contracts.errors import ConfigError, ModelRequestError
from hermes_tokens import ChatTokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


def writer(folder, *texts):
    """Sample these texts in turn, over and over."""
    tokenizer = ChatTokenizer.load(folder)
    asked = []

    def sample(prompt, sampling):
        asked.append(sampling)
        text = texts[(len(asked) - 1) % len(texts)]
        ids = tokenizer.encode_scaffold(text)
        logprobs = [-(1 + place) / 8 for place in range(len(ids))]
        return Sampled(ids=ids, logprobs=logprobs, stop_id=ids[-1])

    return sample


def env_for(url, folder, tmp_path, kind=PuzzleEnv, **fields):
    server_fields = {key: fields.pop(key) for key in ("server_type", "model_name") if key in fields}
    defaults = {
        "tokenizer_name": str(folder),
        "group_size": 1,
        "total_steps": 1,
        "include_messages": True,
        "data_path_to_save_groups": str(tmp_path / "g.jsonl"),
    }
    return kind(config(**{**defaults, **fields}), [server(base_url=f"{url}/v1", **server_fields)])


@pytest.mark.parametrize(("protocol", "kind"), [("vllm", "vllm"), ("sglang", "sglang"), ("atropos", "vllm")])
async def test_constrained_sequences_are_dropped_as_inexact_unless_the_config_allows_them(
    protocol, kind, folder, tmp_path
):
    fields = {
        "sampling": {"logit_bias": {"5": 1.0}},
        "server_type": kind,
        "tool_call_parser": "shouting",
        "require_exact": True,
        "max_attempts": 1,
    }
    async with serving_tokens(TokenServer(protocol, writer(folder, "the answer<|im_end|>"))) as served:
        env = env_for(served.url, folder, tmp_path, min_group_size=1, **fields)
        await env.process_manager()
        (entry,) = env.ledger.entries
        assert "sampled tokens under logit_bias" in entry.reason
        assert "allow_constrained: true" in entry.reason
        path = tmp_path / "allowed.jsonl"
        fields["data_path_to_save_groups"] = str(path)
        allowing = env_for(served.url, folder, tmp_path, allow_constrained=True, **fields)
        await allowing.process_manager()
    (group,) = lines(path)
    (about,) = group["overrides"]
    assert about["constrained"] is True
    assert about["exactness"]["constrained_tokens"] == about["exactness"]["counts"]["sampled"]


@pytest.mark.parametrize(("protocol", "kind"), [("vllm", "vllm"), ("sglang", "sglang"), ("atropos", "vllm")])
async def test_phase_two_hands_on_what_the_server_sampled(protocol, kind, folder, tmp_path):
    """A server of type vllm is stock vLLM or Atropos' own, detected by a check."""
    texts = ("CALL noop<|im_end|>", "the answer<|im_end|>")
    async with serving_tokens(TokenServer(protocol, writer(folder, *texts))) as served:
        env = env_for(served.url, folder, tmp_path, server_type=kind, tool_call_parser="shouting")
        await env.process_manager()
        (group,) = lines(tmp_path / "g.jsonl")
    trained = [mask for mask in group["masks"][0] if mask != -100]
    tokenizer = ChatTokenizer.load(folder)
    assert trained == [token for text in texts for token in tokenizer.encode_scaffold(text)]
    expected = [-(1 + place) / 8 for text in texts for place in range(len(tokenizer.encode_scaffold(text)))]
    paired = zip(group["masks"][0], group["inference_logprobs"][0], strict=True)
    assert [logprob for mask, logprob in paired if mask != -100] == pytest.approx(expected)
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant", "tool", "assistant"]


async def test_tools_that_the_chat_template_does_not_list_are_declared_by_the_environments_parser(tmp_path):
    folder = chatml_folder(tmp_path / "tokenizer", template=TEMPLATE.partition("{% endif %}\n")[2])
    served_texts = writer(folder, "CALL noop<|im_end|>", "the answer<|im_end|>")
    async with serving_tokens(TokenServer("vllm", served_texts)) as served:
        env = env_for(served.url, folder, tmp_path, server_type="vllm", tool_call_parser="shouting", require_exact=True)
        await env.process_manager()
    prompt = ChatTokenizer.load(folder).decode(served.lines[0]["prompt_ids"])
    assert prompt.startswith("<|im_start|>system\nWrite CALL and one of: ")
    (group,) = lines(tmp_path / "g.jsonl")
    assert [message["role"] for message in group["messages"][0]] == ["user", "assistant", "tool", "assistant"]


async def test_a_server_without_logprobs_never_gets_a_made_up_number(folder, tmp_path):
    def sample(prompt, sampling):
        return Sampled(ids=[5, 6], logprobs=[None, None])

    async with serving_tokens(TokenServer("vllm", sample)) as served:
        env = env_for(served.url, folder, tmp_path, server_type="vllm")
        await env.process_manager()
    (group,) = lines(tmp_path / "g.jsonl")
    assert group["inference_logprobs"] is None
    reason = env.outlet.refusal(group, for_trainer=True, max_token_len=0)
    assert reason == "not trainable: the server gave trained tokens without logprobs"


async def test_a_tokenizer_without_a_chat_template_is_one_clear_message(tmp_path):
    bare = chatml_folder(tmp_path / "bare", template=None)
    with pytest.raises(ConfigError, match="chat_template"):
        await env_for("http://127.0.0.1:9", bare, tmp_path, server_type="vllm").process_manager()


async def test_a_tokenizer_folder_that_is_not_there_is_one_clear_message(tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match="tokenizer_name"):
        env_for("http://127.0.0.1:9", missing, tmp_path, server_type="vllm")


def test_a_server_type_without_logprobs_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="trl gives no logprobs"):
        env_for("http://127.0.0.1:9", folder, tmp_path, server_type="trl")


async def test_phase_one_asks_the_chat_server_once_a_turn_and_for_nothing_else(folder, tmp_path):
    """Peers 4, 19: bare atroposlib sampled once a second to see whether the server is there."""
    async with serving_answers() as served:
        call = {"id": "c", "type": "function", "function": {"name": "noop", "arguments": "{}"}}
        served.set_answers(completion(None, tool_calls=[call]), completion("done"))
        env = env_for(served.url.removesuffix("/v1"), folder, tmp_path)
        await env.process_manager()
        bodies = [body for _, body in served.chats]
    assert len(bodies) == 2
    assert served.lists == 1
    assert bodies[0]["model"] == "m"
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"]) == (1.0, 2048)
    (group,) = lines(tmp_path / "g.jsonl")
    assert group["overrides"][0]["trainable"] is False


async def test_phase_one_has_tokens_for_sft_with_a_loss_on_what_the_model_wrote(folder, tmp_path):
    async with serving_answers() as served:
        call = {"id": "c", "type": "function", "function": {"name": "noop", "arguments": "{}"}}
        served.set_answers(completion(None, tool_calls=[call]), completion("the answer"))
        await env_for(served.url.removesuffix("/v1"), folder, tmp_path).process_manager()
    (group,) = lines(tmp_path / "g.jsonl")
    tokenizer = ChatTokenizer.load(folder)
    spans, inside = [], False
    for token, mask in zip(group["tokens"][0], group["masks"][0], strict=True):
        if mask != -100:
            spans = [*spans[:-1], [*spans[-1], token]] if inside else [*spans, [token]]
        inside = mask != -100
    written = [tokenizer.decode(span) for span in spans]
    assert written[0] == '<tool_call>\n{"name": "noop", "arguments": {}}\n</tool_call><|im_end|>'
    assert written[1:] == ["the answer<|im_end|>"]
    assert "noop" in tokenizer.decode(group["tokens"][0]).partition("<|im_start|>user")[0]


async def test_a_refused_request_is_sent_once_and_its_reason_is_the_rollouts(folder, tmp_path):
    """Peers 4, 20: bare atroposlib sent it nine times."""
    async with serving_answers() as served:
        served.set_answers((400, {"error": {"message": "bad tools"}}, {}))
        env = env_for(served.url.removesuffix("/v1"), folder, tmp_path, max_attempts=1, min_group_size=1)
        await env.process_manager()
        assert len(served.chats) == 1
    assert "bad tools" in env.ledger.entries[0].reason


async def test_an_unknown_model_name_is_found_before_the_first_rollout(folder, tmp_path):
    async with serving_answers() as served:
        env = env_for(served.url.removesuffix("/v1"), folder, tmp_path, model_name="other")
        with pytest.raises(ModelRequestError, match="to list the model 'other'"):
            await env.process_manager()
        assert served.chats == []


async def test_own_code_uses_self_server_and_gets_objects(folder, tmp_path):
    """Peers 4, 7: tool calls came back as dicts inside a message."""
    async with serving_answers() as served:
        call = {"id": "c", "type": "function", "function": {"name": "noop", "arguments": "{}"}}
        served.set_answers(completion(None, tool_calls=[call]))
        env = env_for(served.url.removesuffix("/v1"), folder, tmp_path)
        answer = await env.server.chat_completion(
            messages=[{"role": "user", "content": "x"}], n=2, temperature=0.0, split="eval", extra_body={"a": 1}
        )
        await env.aclose()
        body = served.chats[0][1]
    assert [choice.message.tool_calls[0].function.name for choice in answer.choices] == ["noop", "noop"]
    assert (body["temperature"], body["a"]) == (0.0, 1)
    assert "n" not in body
    assert "split" not in body
    with pytest.raises(NotImplementedError, match="server_type vllm"):
        async with env.server.managed_server():
            pass


async def test_own_code_gets_exact_tokens_from_a_managed_server(folder, tmp_path):
    """Peers 4, 8: hermes-agent's call was a TypeError on bare atroposlib."""
    async with serving_tokens(TokenServer("vllm", writer(folder, "one<|im_end|>", "two<|im_end|>"))) as served:
        env = env_for(served.url, folder, tmp_path, server_type="vllm")
        messages = [{"role": "user", "content": "x"}]
        async with env.server.managed_server(tokenizer=None, tool_call_parser=None) as managed:
            first = await managed.chat_completion(messages=messages, max_tokens=9)
            messages += [{"role": "assistant", "content": first.choices[0].message.content}]
            messages += [{"role": "user", "content": "y"}]
            await managed.chat_completion(messages=messages, max_tokens=9)
            (node,) = managed.get_state()["nodes"]
        await env.aclose()
    assert first.choices[0].message.content == "one"
    trained = [mask for mask in node.masked_tokens if mask != -100]
    assert ChatTokenizer.load(folder).decode(trained) == "one<|im_end|>two<|im_end|>"
    assert len(node.logprobs) == len(node["tokens"])


async def test_an_own_agent_loop_on_a_managed_server_keeps_the_tokens_of_all_turns(folder, tmp_path):
    texts = ("CALL noop<|im_end|>", "the answer<|im_end|>")
    async with serving_tokens(TokenServer("vllm", writer(folder, *texts))) as served:
        env = env_for(served.url, folder, tmp_path, server_type="vllm", tool_call_parser="shouting")
        tools, names = env._resolve_tools_for_group()
        messages = [{"role": "user", "content": "x"}]
        async with env.server.managed_server(tokenizer=None) as managed:
            loop = HermesAgentLoop(managed, tools, names, max_turns=5, temperature=0.0, max_tokens=9)
            result = await loop.run(messages)
        await env.aclose()
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    (node,) = result.managed_state["nodes"]
    trained = [mask for mask in node.masked_tokens if mask != -100]
    assert ChatTokenizer.load(folder).decode(trained) == "".join(texts)


async def test_an_own_agent_loop_with_a_failing_server_has_not_finished(folder, tmp_path):
    async with serving_answers() as served:
        served.set_answers((400, {"error": {"message": "bad"}}, {}))
        env = env_for(served.url.removesuffix("/v1"), folder, tmp_path)
        messages = [{"role": "user", "content": "x"}]
        result = await HermesAgentLoop(env.server, [], []).run(messages)
        await env.aclose()
    assert (result.finished_naturally, result.turns_used, result.managed_state) == (False, 0, None)


async def test_a_reward_reads_the_nodes_of_its_rollout_by_attribute_and_by_key(folder, tmp_path):
    seen = []

    class Reading(PuzzleEnv):
        async def compute_reward(self, item, result, ctx):
            node = result.managed_state["nodes"][-1]
            seen.append(node.tokens == node["tokens"])
            return 1.0

    async with serving_tokens(TokenServer("vllm", writer(folder, "one<|im_end|>"))) as served:
        env = env_for(served.url, folder, tmp_path, kind=Reading, server_type="vllm")
        await env.process_manager()
    assert seen == [True]
    assert lines(tmp_path / "g.jsonl")[0]["overrides"][0]["exactness"]["sampled_trained_share"] == 1.0


def test_the_parser_of_the_tests_is_there():
    assert "atropos_components" in PLUGINS["extra"]


async def test_stop_tokens_that_the_template_does_not_write_stop_an_environment_that_allows_no_branch(tmp_path):
    lacking = chatml_folder(tmp_path / "tokenizer", stops=["<|endoftext|>"])
    (close,) = ChatTokenizer.load(lacking).encode_scaffold("<|im_end|>")
    fields = {"server_type": "vllm", "tool_call_parser": "shouting", "allow_branches": False}
    async with serving_tokens(TokenServer("vllm", writer(lacking, "the answer<|im_end|>"))) as served:
        env = env_for(served.url, lacking, tmp_path, **fields)
        with pytest.raises(ConfigError, match="every such turn starts a branch"):
            await env.process_manager()
        assert served.lines == []
        settled = env_for(served.url, lacking, tmp_path, sampling={"stop_token_ids": [close]}, **fields)
        await settled.process_manager()
        assert {tuple(line["sampling"]["stop_token_ids"]) for line in served.lines} == {(close,)}
