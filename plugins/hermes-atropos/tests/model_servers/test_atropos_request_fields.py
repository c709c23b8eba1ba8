"""What a configuration puts into the requests of a server with token ids: sent where there is a place, else refused."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, config, server
from chat_server import completion, serving_answers
from chatml_folder import TEMPLATE, chatml_folder
from token_server import Sampled, TokenServer, serving_tokens

from hermes_atropos.model_servers.request_fields import sampling_of
from hermes_core.contracts.errors import ConfigError
from hermes_tokens import ChatTokenizer

SWITCHES = {
    "enable_thinking": TEMPLATE.replace("{% if thinking %}", "{% if enable_thinking %}"),
    "thinking": TEMPLATE,
    "reasoning_effort": TEMPLATE.replace(
        "{% if thinking %}<think>\n{% endif %}", "{% if reasoning_effort %}<think>{{ reasoning_effort }}\n{% endif %}"
    ),
    "thinking_budget": TEMPLATE.replace(
        "{% if thinking %}<think>\n{% endif %}", "{% if thinking_budget %}<think>{{ thinking_budget }}\n{% endif %}"
    ),
    "none": TEMPLATE.replace("{% if thinking %}<think>\n{% endif %}", ""),
}
BY_PROTOCOL = {"vllm": "vllm", "sglang": "sglang", "atropos": "vllm"}


class OwnModel(PuzzleEnv):
    """Asks a model of its own."""

    def build_model(self):
        return ChatDouble()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("tokenizers")
    return {name: chatml_folder(place / name, template=template) for name, template in SWITCHES.items()}


async def first_request(folder, protocol="vllm", **fields):
    """Run one rollout; returns the sampling parameters of its request and the text of the prompt."""
    found = []

    def sample(prompt, sampling):
        found.append((sampling, ChatTokenizer.load(folder).decode(prompt)))
        return writing(folder)(prompt, sampling)

    async with serving_tokens(TokenServer(protocol, sample)) as served:
        fields = {"tokenizer_name": str(folder), "group_size": 1, "total_steps": 1, **fields}
        env = PuzzleEnv(config(**fields), [server(base_url=f"{served.url}/v1", server_type=BY_PROTOCOL[protocol])])
        await env.process_manager()
    return found[0]


def writing(folder):
    ids = ChatTokenizer.load(folder).encode_scaffold("done<|im_end|>")
    return lambda _prompt, _sampling: Sampled(ids=ids, logprobs=[-0.5] * len(ids), stop_id=ids[-1])


@pytest.mark.parametrize("protocol", BY_PROTOCOL)
async def test_extra_body_is_sent_where_the_protocol_carries_it(folders, protocol):
    sampling, _ = await first_request(folders["none"], protocol, extra_body={"top_k": 7, "temperature": 0.25})
    assert (sampling["top_k"], sampling["temperature"]) == (7, 0.25)


@pytest.mark.parametrize("protocol", BY_PROTOCOL)
@pytest.mark.parametrize("field", ["extra_body", "sampling"])
async def test_a_field_without_a_place_is_refused_before_anything_is_sampled(folders, protocol, field):
    with pytest.raises(ConfigError, match=r"got 'provider'\n.*it supports .*top_p.*servers of type openai") as caught:
        await first_request(folders["none"], protocol, **{field: {"provider": {"order": ["a"]}}})
    assert f"the protocol {'vllm' if protocol == 'atropos' else protocol}" in str(caught.value)


async def test_what_only_stock_vllm_carries_is_refused_where_the_server_is_atropos_own(folders):
    with pytest.raises(ConfigError, match=r"max_reasoning_tokens: .*the protocol atropos .*'thinking_token_budget'"):
        await first_request(folders["none"], "atropos", max_reasoning_tokens=2048)
    sampling, _ = await first_request(folders["none"], "vllm", max_reasoning_tokens=2048)
    assert sampling["thinking_token_budget"] == 2048


async def test_template_variables_within_extra_body_are_the_templates(folders):
    body = {"chat_template_kwargs": {"enable_thinking": True}}
    sampling, prompt = await first_request(folders["enable_thinking"], extra_body=body)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n")
    assert "chat_template_kwargs" not in sampling
    _, prompt = await first_request(
        folders["enable_thinking"], extra_body=body, chat_template_kwargs={"enable_thinking": False}
    )
    assert prompt.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("template", "fields", "ending"),
    [
        ("enable_thinking", {"thinking_mode": True}, "<think>\n"),
        ("thinking", {"thinking_mode": True}, "<think>\n"),
        ("reasoning_effort", {"thinking_mode": True}, "<think>medium\n"),
        ("reasoning_effort", {"reasoning_effort": "high"}, "<think>high\n"),
        ("enable_thinking", {"reasoning_effort": "none", "thinking_mode": True}, "assistant\n"),
        ("enable_thinking", {"max_reasoning_tokens": 2048}, "<think>\n"),
        ("thinking_budget", {"max_reasoning_tokens": 2048}, "<think>2048\n"),
        ("enable_thinking", {"reasoning_effort": "high"}, "<think>\n"),
        ("enable_thinking", {"reasoning_effort": "high", "custom_thinking_prompt": "Think."}, "<think>\n"),
        ("none", {"reasoning_effort": "high", "custom_thinking_prompt": "Think."}, "assistant\n"),
    ],
)
async def test_reasoning_is_switched_by_the_templates_own_variables(folders, template, fields, ending):
    assert (await first_request(folders[template], **fields))[1].endswith(ending)


@pytest.mark.parametrize(
    ("template", "protocol", "fields", "message"),
    [
        ("none", "vllm", {"thinking_mode": True}, "thinking_mode: .*enable_thinking, thinking.*\n.*custom_thinking"),
        ("none", "vllm", {"reasoning_effort": "high"}, "reasoning_effort: the chat template of"),
        ("none", "vllm", {"reasoning_effort": "none"}, "reasoning_effort: the chat template of"),
        ("none", "sglang", {"max_reasoning_tokens": 2048}, "max_reasoning_tokens: .*\n.*server_type: vllm"),
        (
            "thinking",
            "vllm",
            {"thinking_mode": True, "chat_template_kwargs": {"thinking": False}},
            "expected chat_template_kwargs.thinking True as in the reasoning settings, got False",
        ),
    ],
)
async def test_reasoning_without_a_place_is_refused_and_where_it_has_one_is_said(
    folders, template, protocol, fields, message
):
    with pytest.raises(ConfigError, match=message):
        await first_request(folders[template], protocol, **fields)


async def test_a_thinking_prompt_stands_before_the_system_prompt_and_will_do_for_thinking_mode(folders):
    fields = {"custom_thinking_prompt": "Think first.", "thinking_mode": True}
    _, prompt = await first_request(folders["none"], **fields, system_prompt="Be brief.", enabled_toolsets=[])
    assert "<|im_start|>system\nThink first.\n\nBe brief.<|im_end|>" in prompt
    _, prompt = await first_request(folders["none"], **fields, enabled_toolsets=[])
    assert "<|im_start|>system\nThink first.<|im_end|>" in prompt


def test_an_effort_without_a_place_in_a_template_that_thinks_is_said(folders, caplog):
    fields = {"reasoning_effort": "high", "tokenizer_name": str(folders["enable_thinking"])}
    PuzzleEnv(config(**fields), [server(server_type="vllm")])
    assert "reasoning_effort 'high' only switches thinking on" in caplog.text


@pytest.mark.parametrize(
    ("protocol", "name", "form"),
    [
        ("vllm", "guided_json", r"structured_outputs: \{json: SCHEMA\}"),
        ("vllm", "guided_regex", r"structured_outputs: \{regex: PATTERN\}"),
        ("vllm", "guided_choice", r"structured_outputs: \{choice: "),
        ("vllm", "response_format", r"structured_outputs: \{json: SCHEMA\}"),
        ("sglang", "guided_json", "json_schema: SCHEMA"),
        ("sglang", "guided_regex", "regex: PATTERN"),
        ("sglang", "response_format", "json_schema: SCHEMA"),
    ],
)
def test_a_constraint_as_chat_servers_take_it_is_refused_with_the_form_to_write(folders, protocol, name, form):
    with pytest.raises(ConfigError, match=f"got '{name}'\n.*write {form}"):
        PuzzleEnv(
            config(tokenizer_name=str(folders["none"]), extra_body={name: "x"}),
            [server(server_type=BY_PROTOCOL[protocol])],
        )


@pytest.mark.parametrize("fields", [{"extra_body": {"provider": {}}}, {"sampling": {"provider": {}}}])
@pytest.mark.parametrize("server_type", ["vllm", "sglang", "openai"])
@pytest.mark.parametrize("testing", [False, True])
def test_servers_that_are_not_asked_refuse_nothing(fields, server_type, testing):
    """PuzzleEnv in `testing`, or with its own model, never speaks to the entry."""
    made = (PuzzleEnv if testing else OwnModel)(config(**fields), [server(server_type=server_type)], testing=testing)
    assert made.server.servers[0].config.server_type == server_type


OPENROUTER, OPENAI = "http://127.0.0.1:9/v1", "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("fields", "url", "body", "warning"),
    [
        (
            {"reasoning_effort": "low", "max_reasoning_tokens": 2048},
            OPENROUTER,
            {"reasoning": {"enabled": True, "effort": "low"}},
            "reasoning_effort takes priority",
        ),
        (
            {"reasoning_effort": "low", "max_reasoning_tokens": 2048},
            OPENAI,
            {"reasoning_effort": "low"},
            "reasoning_effort takes priority",
        ),
        ({"max_reasoning_tokens": 2048}, OPENAI, {"reasoning_effort": "medium"}, "api.openai.com does not support it"),
    ],
)
def test_what_a_chat_server_is_sent_of_two_wishes_is_what_atroposlib_sends(fields, url, body, warning, caplog):
    sampling = sampling_of(config(**fields), [server(base_url=url)])
    assert {name: sampling[name] for name in sampling if name.startswith("reasoning")} == body
    assert f"max_reasoning_tokens has no effect: {warning}" in caplog.text


def test_an_unknown_effort_is_refused():
    with pytest.raises(ConfigError, match="Invalid reasoning_effort: lots"):
        config(reasoning_effort="lots")


async def test_a_chat_server_is_sent_every_field():
    async with serving_answers() as served:
        served.set_answers(completion("done"))
        fields = {"extra_body": {"provider": {"order": ["a"]}}, "chat_template_kwargs": {"enable_thinking": False}}
        fields |= {"max_reasoning_tokens": 2048, "sampling": {"top_p": 0.5}, "custom_thinking_prompt": "Think."}
        env = PuzzleEnv(config(group_size=1, total_steps=1, **fields), [server(base_url=served.url)])
        await env.process_manager()
    (_, body), *_ = served.chats
    assert body["provider"] == {"order": ["a"]}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["reasoning"] == {"enabled": True, "max_tokens": 2048}
    assert body["top_p"] == 0.5
    assert body["messages"][0] == {"role": "system", "content": "Think."}
