"""`AtroposAgent` by itself and at token level: the loop, its results, its tools."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from agent_envs import NotesEnv, agent_config, agent_env, call_of, copying, responses, script
from atropos_envs import ChatDouble, TokenDouble, lines, server
from chat_server import completion, serving_answers
from chatml_folder import chatml_folder
from token_server import Sampled, TokenServer, serving_tokens

from hermes_atropos import Tool, ToolRegistry, ToolResult, ToolSchema
from hermes_atropos.agent.agent import AtroposAgent
from hermes_atropos.agent.results import AgentConfig
from hermes_core.contracts.errors import ConfigError, ModelServerError
from hermes_core.contracts.model import ModelReply, Usage
from hermes_tokens import ChatTokenizer


class Doubling(Tool):
    schema = ToolSchema("double", "Doubles.", {"type": "object", "properties": {"n": {"type": "integer"}}})

    async def execute(self, n):
        return ToolResult(True, str(2 * n))


def registry():
    tools = ToolRegistry()
    tools.register(Doubling())
    return tools


async def test_an_agent_alone_calls_the_registrys_tools_until_it_answers():
    model = ChatDouble(script(f"<think>x</think>{call_of('double', n=4)}", "It is 8."))
    result = await AtroposAgent(model, registry()).run("Double 4.")
    assert (result.success, result.final_response, result.error) == (True, "It is 8.", None)
    assert (result.num_steps, result.total_tool_calls) == (2, 1)
    assert [step.has_tool_calls for step in result.steps] == [True, False]
    assert result.steps[0].tool_results == [ToolResult(True, "8", uniq_id="call_1_1")]
    assert [message["role"] for message in result.to_messages()] == ["assistant", "user", "assistant"]
    assert result.to_scored_data(1.0) is None
    system, user = model.requests[0].conversation.messages[:2]
    assert '"name": "double"' in system["content"]
    assert user == {"role": "user", "content": "Double 4."}


async def test_execute_tool_makes_the_calls_where_it_is_given():
    made = []

    async def execute(call):
        made.append(call.name)
        return ToolResult(True, "ok")

    await AtroposAgent(ChatDouble(script(call_of("anything"), "done")), registry(), execute_tool=execute).run("x")
    assert made == ["anything"]


async def test_initial_messages_take_the_place_of_the_prompt():
    model = ChatDouble()
    await AtroposAgent(model, registry()).run("next", initial_messages=[{"role": "user", "content": "before"}])
    assert [message["content"] for message in model.requests[0].conversation.messages][:2] == ["before", "next"]


async def test_steps_that_are_used_up_end_the_run_with_an_error():
    agent = AtroposAgent(TokenDouble(script(call_of("double", n=1))), registry(), AgentConfig(max_steps=2))
    result = await agent.run("x")
    assert (result.success, result.error, result.num_steps) == (False, "Reached maximum steps (2)", 2)
    assert result.trajectory_data is not None


async def test_a_server_that_fails_ends_the_run_with_an_error():
    result = await AtroposAgent(ChatDouble(lambda _: ModelServerError("broken")), registry()).run("x")
    assert (result.success, result.error) == (False, "Generation error: broken")


async def test_a_truncated_turn_is_not_an_answer():
    model = ChatDouble(lambda _: ModelReply(content="It is", finish_reason="length"))
    result = await AtroposAgent(model, registry()).run("x")
    assert (result.success, result.error) == (False, "Reached the token limit")


async def test_calls_that_the_token_limit_cuts_off_are_told_so_and_end_the_run():
    text = '<tool_call>{"name": "double", "arguments": {"n": 1'
    reply = ModelReply(content=text, finish_reason="length", usage=Usage(completion_tokens=9))
    model = ChatDouble(lambda _: reply)
    result = await AtroposAgent(model, registry()).run("x")
    assert (result.success, result.error, result.num_steps) == (False, "Reached the token limit", 3)
    assert "cut off at the limit of 9 tokens" in model.requests[1].conversation.messages[-2]["content"]


async def test_cancellation_is_raised_and_not_an_error_of_the_run():
    """hermes-agent turned it into a RuntimeError."""
    reached = asyncio.Event()

    async def answer(request):
        reached.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(AtroposAgent(ChatDouble(answer), registry()).run("x"))
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_tokens_are_counted_and_the_config_goes_into_the_request():
    model = ChatDouble(lambda _: ModelReply(content="x", usage=Usage(prompt_tokens=7, completion_tokens=5)))
    result = await AtroposAgent(model, registry(), AgentConfig(temperature=0.3, max_tokens=9)).run("x")
    assert result.total_tokens == 5
    assert model.requests[0].sampling == {"temperature": 0.3, "max_tokens": 9}


async def test_the_pause_is_between_calls(monkeypatch):
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr("hermes_atropos.agent.agent.pause", pause)
    model = ChatDouble(script(call_of("double", n=1) * 2, call_of("double", n=1), "done"))
    await AtroposAgent(model, registry(), AgentConfig(tool_delay_s=0.5)).run("x")
    assert pauses == [0.5, 0.5]


async def test_a_single_turn_calls_tools_only_on_request():
    messages = [{"role": "user", "content": "x"}]
    agent = AtroposAgent(ChatDouble(script(call_of("double", n=3))), registry())
    assert (await agent.run_single_turn(messages)).tool_results[0].output == "6"
    step = await agent.run_single_turn(messages, execute_tools=False)
    assert (step.tool_results, step.tool_calls[0].arguments) == ([], {"n": 3})


async def test_a_server_of_atropos_own_shape_will_do():
    class Server:
        def __init__(self, servers):
            self.servers = servers

        async def chat_completion(self, **options):
            self.options = options
            return await self.servers.chat_completion(**options)

    env = agent_env(ChatDouble(script(call_of("double", n=3), "6")))
    given = Server(env.server)
    result = await AtroposAgent(given, registry()).run("x")
    assert result.final_response == "6"
    assert given.options["temperature"] == 0.7
    assert (await AtroposAgent(env.server, registry()).run("x")).success
    await env.aclose()


async def test_a_tool_that_returns_something_else_is_an_error_of_its_author():
    class Odd(Doubling):
        async def execute(self, n):
            return n

    tools = ToolRegistry()
    tools.register(Odd())
    result = await AtroposAgent(ChatDouble(script(call_of("double", n=3), "6")), tools).run("x")
    assert "tool 'double': expected a ToolResult" in result.error
    with pytest.raises(ConfigError, match="got int"):
        await tools.execute(type(result.steps[0].tool_calls[0])("double", {"n": 1}))


def test_a_registry_describes_its_tools():
    tools = registry()
    assert tools.get("double").schema.name == "double"
    assert tools.get("none") is None
    assert tools.get_prompt_description() == "- double: Doubles."
    assert tools.get_schemas()[0].to_dict()["required"] is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


class Sampler:
    """Samples the reply of `copying` to the prompt's text, including the stop token.

    What the prompt has `opened` is not sampled.
    """

    def __init__(self, folder, *, opened=""):
        self.tokenizer = ChatTokenizer.load(folder)
        self.opened = opened
        self.sampled = []

    def __call__(self, prompt, sampling):
        tokenizer, opened, sampled = self.tokenizer, self.opened, self.sampled
        turns = tokenizer.decode(prompt).split("<|im_start|>")[1:]
        messages = [
            {"role": role, "content": content.removesuffix("\n").removesuffix("<|im_end|>")}
            for role, _, content in (turn.partition("\n") for turn in turns[:-1])
        ]
        request = type("Asked", (), {"conversation": type("Talk", (), {"messages": messages})})
        text = copying(request).content.removeprefix(opened) + "<|im_end|>"
        sampled.append(text)
        ids = tokenizer.encode_scaffold(text)
        return Sampled(ids=ids, logprobs=[-(1 + place) / 64 for place in range(len(ids))], stop_id=ids[-1])


@pytest.mark.parametrize(("protocol", "kind"), [("vllm", "vllm"), ("sglang", "sglang"), ("atropos", "vllm")])
async def test_at_token_level_every_sampled_token_is_trained_once(protocol, kind, folder, tmp_path):
    sample = Sampler(folder)
    async with serving_tokens(TokenServer(protocol, sample)) as served:
        fields = {
            "tokenizer_name": str(folder),
            "group_size": 1,
            "include_messages": True,
            "require_exact": True,
            "data_path_to_save_groups": str(tmp_path / "g.jsonl"),
            "agent_max_tokens": 400,
        }
        env = NotesEnv(agent_config(**fields), [server(base_url=f"{served.url}/v1", server_type=kind)])
        await env.process_manager()
    (group,) = lines(tmp_path / "g.jsonl")
    tokenizer = ChatTokenizer.load(folder)
    trained = [mask for mask in group["masks"][0] if mask != -100]
    assert trained == [token for text in sample.sampled for token in tokenizer.encode_scaffold(text)]
    assert group["scores"] == [1.0]
    logprobs = [
        value for value, mask in zip(group["inference_logprobs"][0], group["masks"][0], strict=True) if mask != -100
    ]
    assert logprobs == [
        -(1 + place) / 64 for text in sample.sampled for place in range(len(tokenizer.encode_scaffold(text)))
    ]
    result = env.seen[0][2]
    assert list(result.trajectory_data.tokens) == group["tokens"][0]
    assert result.steps[-1].sequence_data == result.trajectory_data
    assert result.to_scored_data(1.0)["masks"] == group["masks"][0]


async def test_reasoning_that_the_prompt_opens_is_exact_too(folder, tmp_path):
    sample = Sampler(folder, opened="<think>")
    async with serving_tokens(TokenServer("vllm", sample)) as served:
        fields = {
            "tokenizer_name": str(folder),
            "group_size": 1,
            "require_exact": True,
            "include_messages": True,
            "chat_template_kwargs": {"thinking": True},
            "data_path_to_save_groups": str(tmp_path / "g.jsonl"),
            "agent_max_tokens": 400,
        }
        env = NotesEnv(agent_config(**fields), [server(base_url=f"{served.url}/v1", server_type="vllm")])
        await env.process_manager()
    (group,) = lines(tmp_path / "g.jsonl")
    tokenizer = ChatTokenizer.load(folder)
    trained = [mask for mask in group["masks"][0] if mask != -100]
    assert trained == [token for text in sample.sampled for token in tokenizer.encode_scaffold(text)]
    assert group["scores"] == [1.0]
    assert group["messages"][0][2]["content"].startswith("<think>Read first.</think>")


async def test_in_phase_one_a_chat_server_will_do(tmp_path):
    async with serving_answers() as served:
        served.set_answers(completion(call_of("terminal", command="echo heron")), completion("heron"))
        fields = {"group_size": 1, "data_path_to_save_groups": str(tmp_path / "g.jsonl"), "include_messages": True}
        env = NotesEnv(agent_config(**fields), [server(base_url=served.url)])
        await env.setup()
        outcome = await env.run_item(await env.get_next_item())
        await env.aclose()
    assert responses(outcome.messages[3]["content"])[0]["output"] == "heron"
    assert outcome.reward == 0.5, outcome.reward_failure
    assert outcome.samples == ()


async def test_in_phase_one_tokens_for_supervised_learning_hold_the_tools_once(folder, tmp_path):
    path = tmp_path / "g.jsonl"
    fields = {"group_size": 1, "data_path_to_save_groups": str(path), "tokenizer_name": str(folder)}
    await agent_env(ChatDouble(copying), **fields).process_manager()
    (group,) = lines(path)
    text = ChatTokenizer.load(folder).decode(group["tokens"][0])
    assert text.count('"name": "read_file", "description"') == 1
    assert "Tools:" not in text, "what the chat template writes for tools of its own"
    assert group["overrides"][0]["trainable"] is False
