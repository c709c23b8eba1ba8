"""Every chat template of TRL: the rule agrees with it in every case that it supports."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import KINDS, stops_of, trl_templates, trl_tokenizer

from hermes_core.contracts.model import RequestedCall
from hermes_tokens.append_rule.append import AppendRule, ClosedTurn
from hermes_tokens.chat_template.template import ChatTemplate
from hermes_tokens.chat_template.template_check import prove_template

TEMPLATES = trl_templates()
NAMES = sorted(TEMPLATES)
ORIGINALS = [name for name in NAMES if not name.endswith("_training")]
TOOL = {"type": "object", "properties": {"place": {"type": "string", "description": "where"}}, "required": ["place"]}
TOOLS = ({"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": TOOL}},)
# They raise on a tool message or leave it out; the llamas take one call a turn.
WITHOUT_TOOLS = ("cohere", "gemma", "gemma3", "llava", "phi3")
WITHOUT_TWO = (*WITHOUT_TOOLS, "llama3_1", "llama3_2")
pytestmark = pytest.mark.skipif(not NAMES, reason="the distribution trl is not installed")


def lacks(name, families):
    return name.startswith(families) and not name.startswith("gemma4")


@functools.cache
def rule_of(name):
    return AppendRule(trl_tokenizer(name))


@functools.cache
def proof_of(name):
    return prove_template(rule_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_template_passes_every_case_that_it_supports(name):
    proof = proof_of(name)
    proof.require()
    results = {case.name: case.result for case in proof.cases}
    expected = {
        "opening": "ok",
        "user_message": "ok",
        "tool_result": "unsupported" if lacks(name, WITHOUT_TOOLS) else "ok",
        "two_tool_results": "unsupported" if lacks(name, WITHOUT_TWO) else "ok",
        "several_turns": "unsupported" if lacks(name, WITHOUT_TOOLS) else "ok",
        "thinking": "unsupported" if lacks(name, WITHOUT_TOOLS) else "ok",
    }
    assert {case: results[case] for case in expected} == expected


@pytest.mark.parametrize(("case", "least"), [("tool_result", 17), ("two_tool_results", 14), ("user_message", 26)])
def test_at_least_as_many_templates_pass_as_in_an_outside_count(case, least):
    proved = [name for name in NAMES for each in proof_of(name).cases if each.name == case and each.result == "ok"]
    assert len(proved) >= least


@pytest.mark.parametrize("name", NAMES)
def test_tools_change_nothing(name):
    proof = prove_template(AppendRule(trl_tokenizer(name), tools=TOOLS))
    assert [case for case in proof.cases if case.result == "failed"] == []


@pytest.mark.parametrize("name", [name for name in NAMES if "enable_thinking" in TEMPLATES[name]])
@pytest.mark.parametrize("thinking", [True, False])
def test_switched_thinking_changes_nothing(name, thinking):
    proof = prove_template(AppendRule(trl_tokenizer(name), template_kwargs={"enable_thinking": thinking}))
    assert [case for case in proof.cases if case.result == "failed"] == []


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("name", ["qwen3", "glm4moe", "gptoss", "gemma4_v5", "llama3_1", "phi3", "deepseekv3"])
def test_the_kind_of_tokenizer_changes_nothing(name, kind):
    proof = prove_template(AppendRule(trl_tokenizer(name, kind)))
    assert [case for case in proof.cases if case.result == "failed"] == []


@pytest.mark.parametrize("name", NAMES)
def test_unnamed_stop_tokens_are_found(name):
    tokenizer = trl_tokenizer(name)
    tokenizer.stop_ids = frozenset()
    assert [case for case in prove_template(AppendRule(tokenizer)).cases if case.result == "failed"] == []


harmless = st.text(alphabet="abc XYZ.,:\n\"'\\{}é🙂", max_size=40)
pieces = st.one_of(
    st.text(max_size=5), st.sampled_from(("\n", " ", "\x00", "\ud800", "<|im_end|>", "<think>", '<|"|>'))
)


@pytest.mark.parametrize("name", ORIGINALS)
@given(content=harmless)
@settings(max_examples=15, deadline=None)
def test_harmless_content_has_the_ids_of_the_templates_own_text(name, content):
    rule = rule_of(name)
    message = {"role": "user", "content": content}
    assert rule.opening([message]).ids == _own(rule, [message])
    said = {"role": "assistant", "content": "Well."}
    stop = _stop(rule, name)
    appended = rule.delta(ClosedTurn(last_id=stop), [message])
    own = _own(rule, [{"role": "user", "content": "Hello"}, said, message])
    assert appended.ids == own[len(own) - len(appended.ids) :]


def _own(rule, messages):
    text = rule.template.render(rule.renderer.adapt(messages))
    return tuple(rule.tokenizer.encode_scaffold(text))


def _stop(rule, name):
    return rule.tokenizer.controls.by_text[stops_of(name)[0]].id


@pytest.mark.parametrize("name", ORIGINALS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_nothing_that_a_tool_prints_is_a_control_token(name, data):
    rule = rule_of(name)
    controls = sorted(rule.tokenizer.controls.by_text)
    content = "x" + "".join(data.draw(st.lists(st.one_of(pieces, st.sampled_from(controls)), max_size=6)))
    called = data.draw(st.sampled_from(controls)) if data.draw(st.booleans()) else "look"
    role = "user" if lacks(name, WITHOUT_TOOLS) else "tool"
    assert _controls(rule, role, content, called) == _controls(rule, role, "x", "look")


def _controls(rule, role, content, called):
    calls = (RequestedCall(id="call00001", name=called, arguments="{}"),) if role == "tool" else ()
    appended = rule.delta(ClosedTurn(calls=calls), [{"role": role, "tool_call_id": "call00001", "content": content}])
    opening = rule.opening([{"role": "user", "content": content}])
    return [number for number in (*appended.ids, *opening.ids) if number in rule.tokenizer.control_ids]


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_like_an_earlier_one_runs_no_template(name, monkeypatch):
    rule = AppendRule(trl_tokenizer(name))
    rule.delta(ClosedTurn(), [{"role": "user", "content": "first"}])
    monkeypatch.setattr(ChatTemplate, "render", None)
    assert rule.delta(ClosedTurn(), [{"role": "user", "content": "second"}]).ids
