"""Stop tokens that only the parser knows: models without generation_config.json in their folder."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
from small_tokenizers import tokenizer_for, trl_templates
from token_rollout import CALL, CALLED, RESULT, USER, Rollout
from token_server import Sampled, TokenServer, serving_tokens

from hermes_core.contracts.model import RequestedCall
from hermes_parsers import get_parser
from hermes_tokens.append_rule.append import AppendRule, ClosedTurn
from hermes_tokens.chat_template.template_check import prove_template
from hermes_tokens.clients.factory import create_generate_client
from hermes_tokens.clients.stop_tokens import branching_stops, family_stops
from hermes_tokens.clients.token_model import TokenModel

pytestmark = pytest.mark.skipif(not trl_templates(), reason="the distribution trl is not installed")

LOOK = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}
# A template: its parser, the stop token of tokenizer_config.json, those that only the parser has, and two turns.
FAMILIES = {
    "gemma4": (
        "gemma4",
        "<eos>",
        ("<turn|>", "<|tool_response>"),
        '<|tool_call>call:terminal{command:<|"|>ls<|"|>}<tool_call|><|tool_response>',
        "Done.<turn|>",
    ),
    "glm4moe": (
        "glm45",
        "<|endoftext|>",
        ("<|user|>", "<|observation|>"),
        "<tool_call>terminal\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call><|observation|>",
        "\n<think></think>\nDone.<|user|>",
    ),
    "qwen3": (
        "hermes",
        "<|endoftext|>",
        ("<|im_end|>",),
        '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>',
        "Done.<|im_end|>",
    ),
    "gptoss": (
        "gpt-oss",
        "<|return|>",
        ("<|call|>",),
        '<|channel|>commentary to=functions.terminal <|constrain|>json<|message|>{"command": "ls"}<|call|>',
        "<|channel|>final<|message|>Done.<|return|>",
    ),
}
# There is no separate token between a call and its result.
ANSWERING = (
    "{% for m in messages %}{% if m.role == 'tool' %}Answer to {{ m.tool_call_id }}<|sep|>{% else %}{{ m.role }}: "
    "{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}\n"
    "{% endfor %}{% if m.role != 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
)
GEMMAS = [name for name in trl_templates() if name.startswith(("gemma4", "diffusion_gemma"))]


def tokenizer_of(name, *, is_complete=False):
    _, own, others, *_ = FAMILIES[name]
    return tokenizer_for(trl_templates()[name], stops=(own, *others) if is_complete else (own,), more=others)


@asynccontextmanager
async def family(name, *, is_complete=False, **options):
    parser, *_, first, second = FAMILIES[name]
    tokenizer = tokenizer_of(name, is_complete=is_complete)
    texts = [first, second, second]

    def sample(_prompt, _sampling):
        ids = tokenizer.encode_scaffold(texts.pop(0))
        return Sampled(ids=ids, logprobs=[-0.5] * len(ids), finish_reason="stop", stop_id=ids[-1])

    async with serving_tokens(TokenServer("vllm", sample)) as server:
        client = create_generate_client("vllm", server.url, "m")
        model = TokenModel(client, tokenizer, **{"parser": get_parser(parser), **options})
        try:
            yield Rollout(server, model, tokenizer)
        finally:
            await model.aclose()


async def prompts_of(name, **options):
    """Run two turns, and return what was sent before each, and the report."""
    async with family(name, **options) as rollout:
        await rollout.ask(USER)
        await rollout.ask(USER, CALLED, RESULT)
        texts = [rollout.tokenizer.decode(line["prompt_ids"]) for line in rollout.server.lines]
        return texts, rollout.session.exactness()


@pytest.mark.parametrize("options", [{}, {"parser": None}], ids=["known to the parser", "known to the server alone"])
@pytest.mark.parametrize("name", FAMILIES)
async def test_a_family_stop_token_closes_a_turn_as_one_of_the_tokenizer_does(name, options):
    texts, report = await prompts_of(name, **options)
    assert texts == (await prompts_of(name, is_complete=True, **options))[0]
    assert report.is_exact, report.faults
    assert report.parity_checked == report.parity_equal == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rule_appends_the_same_for_every_source_of_the_stop_token(name):
    lacking, complete = tokenizer_of(name), tokenizer_of(name, is_complete=True)
    rule = AppendRule(lacking, stop_ids=family_stops(lacking, get_parser(FAMILIES[name][0])))
    texts = [tool_delta(each, FAMILIES[name][2][-1]) for each in (rule, AppendRule(complete))]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", GEMMAS)
@pytest.mark.parametrize("last", [None, "<|tool_response>", "<turn|>", "<tool_call|>"])
def test_without_named_stop_tokens_no_text_of_the_next_message_is_lost(name, last):
    rule = AppendRule(tokenizer_for(trl_templates()[name], stops=("<eos>",), more=("<turn|>", "<|tool_response>")))
    assert prove_template(rule).is_exact
    begins = "<|turn>tool" if "<|turn>tool" in tool_delta(rule, None) else "response:terminal"
    assert begins in tool_delta(rule, last)


def test_the_proof_finds_text_of_the_next_message_that_is_taken_for_the_turns():
    """A stop token of the tokenizer that the template writes behind the call that is answered."""
    proof = prove_template(AppendRule(tokenizer_for(ANSWERING, stops=("<|sep|>",))))
    (case,) = [case for case in proof.cases if case.name == "tool_result"]
    assert (case.result, case.reason) == ("failed", "the texts differ")
    assert "Answer to" in case.expected


@pytest.mark.parametrize("tools", [(), (LOOK,)], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_whose_parser_knows_its_stop_tokens_gives_no_warning(name, tools):
    tokenizer = tokenizer_of(name)
    parser = get_parser(FAMILIES[name][0])
    rule = AppendRule(tokenizer, tools=tools, parser=parser, stop_ids=family_stops(tokenizer, parser))
    assert list(branching_stops(rule, {})) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_hint_names_only_tokens_that_end_turns(name):
    """gpt-oss also ends its thoughts by <|end|>: a server that stops there breaks it."""
    tokenizer = tokenizer_of(name)
    ends = {tokenizer.controls.by_text[text].id for text in (*FAMILIES[name][2], FAMILIES[name][1])}
    for fault in branching_stops(AppendRule(tokenizer, tools=(LOOK,)), {}):
        ids = {int(found) for found in re.findall(r"\d+", fault.error.hint or "")}
        assert ids <= ends


@pytest.mark.parametrize("tools", [(), (LOOK,)], ids=["no tools", "tools"])
def test_a_stop_token_for_one_kind_of_turn_does_not_settle_the_other(tools):
    """Gemma 4 ends a turn with calls otherwise; that is an error only where tools are offered."""
    tokenizer = tokenizer_for(trl_templates()["gemma4"], stops=("<eos>", "<turn|>"), more=("<|tool_response>",))
    (fault,) = branching_stops(AppendRule(tokenizer, tools=tools), {})
    assert "expected turns to stop at '<|tool_response>'" in fault.error.message
    assert fault.is_certain is bool(tools)


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("llama3_1", ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")),
        ("gptoss", ("<|return|>", "<|call|>", "<|endoftext|>")),
    ],
)
@pytest.mark.parametrize("own", [1, 3])
def test_usual_stop_tokens_of_a_family_are_accepted(name, stops, own):
    tokenizer = tokenizer_for(trl_templates()[name], stops=stops[-own:] if own == 3 else stops[1:2], more=stops)
    sampling = {"stop_token_ids": [tokenizer.controls.by_text[text].id for text in stops]}
    assert list(branching_stops(AppendRule(tokenizer, tools=(LOOK,)), sampling)) == []


def tool_delta(rule, last):
    """The text after a turn with a call whose last token has this text."""
    call = RequestedCall(id=CALL["id"], name="terminal", arguments="{}")
    last_id = None if last is None else rule.tokenizer.controls.by_text[last].id
    return rule.tokenizer.decode(rule.delta(ClosedTurn(last_id=last_id, calls=(call,)), [RESULT]).ids)
