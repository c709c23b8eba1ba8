"""Appending to a sampled turn: junctions, untrusted text, and the cost."""

from __future__ import annotations

import functools

import pytest
from chatml_folder import TEMPLATE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tokenizers import tokenizer_for, trl_templates, trl_tokenizer

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import RequestedCall
from hermes_tokens.append_rule.append import AppendRule, ClosedTurn
from hermes_tokens.chat_template.template import ChatTemplate, TemplateError

USER = {"role": "user", "content": "And then?"}
CALL = RequestedCall(id="call00001", name="look", arguments="{}")
OTHER = RequestedCall(id="call00002", name="wait", arguments="{}")
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "7 °C"}
needs_trl = pytest.mark.skipif(not trl_templates(), reason="the distribution trl is not installed")


@pytest.fixture(scope="module")
def rule():
    return AppendRule(tokenizer_for(TEMPLATE))


def token(rule, text):
    return rule.tokenizer.controls.by_text[text].id


def text_of(rule, appended):
    return rule.tokenizer.decode(appended.ids)


def counts(appended):
    return appended.kept, appended.replaced, appended.inserted


def test_the_first_prompt_is_what_the_template_writes(rule):
    messages = [{"role": "system", "content": "Be kind.\n"}, {"role": "user", "content": " Hello "}]
    opening = rule.opening(messages)
    assert opening.ids == tuple(rule.tokenizer.encode_scaffold(rule.template.render(messages)))
    assert [span.role for span in opening.spans] == ["system", "user", "assistant"]
    assert rule.tokenizer.decode(opening.spans[-1].ids) == "<|im_start|>assistant\n"


def test_a_sampled_stop_token_is_kept_and_not_repeated(rule):
    appended = rule.delta(ClosedTurn(last_id=token(rule, "<|im_end|>")), [USER])
    assert counts(appended) == (1, 0, 0)
    assert text_of(rule, appended) == "\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("finish_reason", ["length", "abort", "stop"])
@pytest.mark.parametrize("last_id", [None, 5])
def test_a_turn_that_did_not_close_itself_is_closed(rule, finish_reason, last_id):
    appended = rule.delta(ClosedTurn(last_id=last_id, finish_reason=finish_reason), [USER])
    assert counts(appended) == (0, 0, 1)
    assert text_of(rule, appended) == "<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"


def test_another_stop_token_than_the_templates_gives_way(rule):
    appended = rule.delta(ClosedTurn(last_id=token(rule, "<|endoftext|>")), [USER])
    assert counts(appended) == (0, 1, 0)
    assert text_of(rule, appended).startswith("<|im_end|>\n<|im_start|>user\n")


def test_reasoning_that_was_left_open_is_closed_first(rule):
    open_rule = AppendRule(rule.tokenizer, template_kwargs={"thinking": True})
    appended = open_rule.delta(ClosedTurn(finish_reason="length", reasoning_open=True), [USER])
    assert text_of(rule, appended).startswith("\n</think>\n\n<|im_end|>\n<|im_start|>user")
    assert appended.inserted == len(rule.tokenizer.encode_scaffold("\n</think>\n\n<|im_end|>"))


def test_a_stop_token_inside_reasoning_stays_where_it_was_sampled(rule):
    open_rule = AppendRule(rule.tokenizer, template_kwargs={"thinking": True})
    closing = ClosedTurn(last_id=token(rule, "<|im_end|>"), reasoning_open=True)
    assert counts(open_rule.delta(closing, [USER])) == (1, 0, 0)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_prompt_says_whether_it_opens_reasoning(rule, thinking):
    rule = AppendRule(rule.tokenizer, template_kwargs={"thinking": thinking})
    assert rule.opening([USER]).opens_reasoning is thinking
    assert rule.delta(ClosedTurn(), [USER]).opens_reasoning is thinking


@pytest.mark.parametrize(
    ("opened", "sampled", "expected"),
    [
        (True, "hm", True),
        (True, "hm</think>so", False),
        (True, "hm</think>so<think>hm", True),
        (False, "so", False),
        (False, "<think>hm", True),
        (False, "<think>hm</think>so", False),
    ],
)
def test_reasoning_is_open_when_its_last_mark_opens_it(rule, opened, sampled, expected):
    rule = AppendRule(rule.tokenizer, template_kwargs={"thinking": True})
    assert rule.reasoning.is_open(sampled, opened=opened) is expected


def test_a_call_is_not_completed_when_its_turn_is_closed(rule):
    """The text between arguments and stop token is the model's own."""
    appended = rule.delta(ClosedTurn(calls=(CALL,), finish_reason="length"), [RESULT])
    assert text_of(rule, appended).startswith("<|im_end|>\n<|im_start|>user<tool_response>\n7 °C\n</tool_response>")
    assert appended.inserted == 1


def test_results_of_several_calls_come_back_in_one_delta(rule):
    results = [RESULT, {**RESULT, "tool_call_id": "call00002", "content": "soon"}]
    appended = rule.delta(ClosedTurn(last_id=token(rule, "<|im_end|>"), calls=(CALL, OTHER)), results)
    assert text_of(rule, appended) == (
        "\n<|im_start|>user<tool_response>\n7 °C\n</tool_response><tool_response>\nsoon\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert [span.role for span in appended.spans] == ["assistant", "tool", "tool", "assistant"]


def test_no_new_message_still_gives_a_prompt_to_write_again(rule):
    appended = rule.delta(ClosedTurn(last_id=token(rule, "<|im_end|>")), [])
    assert text_of(rule, appended) == "\n<|im_start|>assistant\n"


def test_content_may_be_a_list_of_texts_or_missing(rule):
    parts = [{"type": "text", "text": "And "}, {"type": "text", "text": "then?"}]
    closing = ClosedTurn()
    assert rule.delta(closing, [{**USER, "content": parts}]).ids == rule.delta(closing, [USER]).ids
    assert "user\n<|im_end|>" in text_of(rule, rule.delta(closing, [{**USER, "content": ""}]))


def test_other_content_than_text_is_refused(rule):
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(ConfigError, match="expected text as a message's content"):
        rule.delta(ClosedTurn(), [{**USER, "content": image}])


def test_a_refused_conversation_is_an_error_with_the_templates_words():
    rule = AppendRule(tokenizer_for("{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}<s>"))
    with pytest.raises(TemplateError, match="one only"):
        rule.delta(ClosedTurn(), [USER])


def test_a_template_that_leaves_a_message_out_is_refused():
    text = "{% for m in messages if m.role != 'tool' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(TemplateError, match="content of tool messages, got one that leaves it out"):
        AppendRule(tokenizer_for(text)).delta(ClosedTurn(calls=(CALL,)), [RESULT])


def test_a_template_that_rewrites_text_in_its_own_way_is_refused():
    text = "{% for m in messages %}<|im_start|>{{ m.content | replace('<', '&lt;') }}<|im_end|>{% endfor %}"
    with pytest.raises(TemplateError, match="got one that changes it otherwise"):
        AppendRule(tokenizer_for(text)).opening([USER])


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("m.content", ' é"\n'),
        ("m.content | trim", 'é"'),
        ("m.content.lstrip()", 'é"\n'),
        ("m.content.strip('\n')", ' é"'),
        ("m.content | tojson", '" é\\"\\n"'),
        ("m.content | tojson(ensure_ascii=true)", '" \\u00e9\\"\\n"'),
    ],
)
def test_what_a_template_does_with_a_text_is_done_to_it(expression, written):
    text = f"{{% for m in messages %}}<|im_start|>{{{{ {expression} }}}}<|im_end|>{{% endfor %}}"
    rule = AppendRule(tokenizer_for(text))
    assert text_of(rule, rule.opening([{"role": "user", "content": ' é"\n'}])) == f"<|im_start|>{written}<|im_end|>"


NAMED = """{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>
{{ (m.extra or [''])[0] }}{{ m.name }}:{{ m.tool_call_id }}
{{ m.content }}<|im_end|>{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }}{{ c.function.name }}{{ c.function.arguments |
tojson }}</tool_call>{% endfor %}<|im_end|>{% endif %}{% endfor %}"""
CONTROLS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<tool_call>", "</think>", "<s>")
hostile = st.lists(
    st.one_of(st.sampled_from(CONTROLS), st.sampled_from(("\n", " ", "\x00", "\ud800", "<|im_")), st.text(max_size=4)),
    min_size=1,
    max_size=6,
).map("".join)


@given(texts=st.tuples(hostile, hostile, hostile))
@example(texts=("<|im_end|>", "<|im_end|>", "<|im_end|>"))
@settings(max_examples=100, deadline=None)
def test_no_content_name_or_id_becomes_a_control_token(texts):
    content, name, number = texts
    rule = named_rule()
    calm, wild = (_with_result(rule, *each) for each in (("x", "x", "x"), (content, name, number)))
    assert _controls(rule, wild) == _controls(rule, calm)


def _with_result(rule, content, name, number):
    call = RequestedCall(id=number, name=name, arguments="{}")
    message = {"role": "tool", "name": name, "tool_call_id": number, "content": content}
    return rule.delta(ClosedTurn(calls=(call,)), [message, {"role": "user", "content": content}])


def _controls(rule, appended):
    return [number for number in appended.ids if number in rule.tokenizer.control_ids]


@functools.cache
def named_rule():
    return AppendRule(tokenizer_for(NAMED, more=CONTROLS))


@given(content=hostile, argument=hostile)
@settings(max_examples=50, deadline=None)
def test_a_history_in_the_first_prompt_becomes_no_control_token(content, argument):
    def opening(content, argument):
        function = {"name": argument, "arguments": {"a": [argument, {"b": argument}], argument: 1}}
        calls = [{"id": argument, "type": "function", "function": function}]
        said = {"role": "assistant", "content": content, "reasoning_content": content, "tool_calls": calls}
        result = {"role": "tool", "name": argument, "tool_call_id": argument, "content": content}
        return named_rule().opening([{"role": "user", "content": content}, said, {**result, "extra": [argument]}])

    assert _controls(named_rule(), opening(content, argument)) == _controls(named_rule(), opening("x", "x"))


def test_the_id_that_the_model_wrote_is_the_one_in_the_prompt():
    call = RequestedCall(id="unique-7", name="look", arguments="{}", wire_id="call:0")
    result = {"role": "tool", "name": "look", "tool_call_id": "unique-7", "content": "7"}
    appended = named_rule().delta(ClosedTurn(calls=(call,)), [result])
    assert "look:call:0\n7" in text_of(named_rule(), appended)


def test_arguments_given_as_json_text_are_an_object_to_the_template():
    function = {"name": "look", "arguments": '{"at": "it"}'}
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    assert '{"at": "it"}' in text_of(named_rule(), named_rule().opening([USER, said]))


def test_a_shape_is_rendered_once(rule, monkeypatch):
    """The cost of a turn is that of encoding what is new."""
    rule = AppendRule(rule.tokenizer)
    closing = ClosedTurn(calls=(CALL,))
    rule.delta(closing, [RESULT])

    def never(*_, **__):
        raise AssertionError("the template was rendered again")

    monkeypatch.setattr(ChatTemplate, "render", never)
    for turn in range(3):
        call = RequestedCall(id=f"call{turn}", name=f"tool{turn}", arguments="{}")
        result = {**RESULT, "tool_call_id": f"call{turn}", "content": f"result {turn}"}
        assert f"result {turn}" in text_of(rule, rule.delta(ClosedTurn(calls=(call,)), [result]))


def test_shapes_do_not_pile_up(rule):
    rule = AppendRule(rule.tokenizer)
    for size in range(600):
        rule.delta(ClosedTurn(), [{**USER, "content": " " * size}])
    assert len(rule._shapes) <= 512


@needs_trl
@pytest.mark.parametrize(
    ("name", "last", "calls", "new", "expected", "start"),
    [
        ("glm4moe", "<|observation|>", (CALL,), RESULT, (1, 0, 0), "\n<tool_response>\n7 °C"),
        ("glm4moe", "<|user|>", (CALL,), RESULT, (0, 1, 0), "<|observation|>\n<tool_response>"),
        ("glm4moe", "<|user|>", (), USER, (1, 0, 0), "\nAnd then?<|assistant|>"),
        ("glm4moe", None, (), USER, (0, 0, 1), "<|user|>\nAnd then?"),
        ("gptoss", "<|call|>", (CALL,), RESULT, (1, 0, 0), "<|start|>functions.look to=assistant"),
        ("gptoss", "<|return|>", (), USER, (0, 1, 0), "<|end|><|start|>user<|message|>And then?"),
        ("gptoss", None, (), USER, (0, 0, 1), "<|end|><|start|>user<|message|>And then?"),
        ("gemma4_v5", "<|tool_response>", (CALL,), RESULT, (1, 0, 0), 'response:look{value:<|"|>7 °C<|"|>}'),
        ("cohere2", "<|END_RESPONSE|>", (), USER, (0, 0, 1), "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"),
        ("cohere2", None, (), USER, (0, 0, 2), "<|END_RESPONSE|><|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"),
        ("qwen3_5_think", "<|im_end|>", (CALL,), RESULT, (1, 0, 0), "\n<|im_start|>user\n<tool_response>\n7 °C"),
        ("deepseekv3", None, (CALL,), RESULT, (0, 0, 1), "<｜end▁of▁sentence｜><｜tool▁outputs▁begin｜>"),
    ],
)
def test_junctions_of_real_templates(name, last, calls, new, expected, start):
    rule = AppendRule(trl_tokenizer(name))
    last_id = None if last is None else token(rule, last)
    appended = rule.delta(ClosedTurn(last_id=last_id, calls=calls), [new])
    assert counts(appended) == expected
    assert text_of(rule, appended).startswith(start)


@needs_trl
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("qwen3", "\n</think>\n\n<|im_end|>\n<|im_start|>user"),
        ("qwen3_5_think", "\n</think>\n\n<|im_end|>\n<|im_start|>user"),
        ("glm4moe", "</think>\n<|user|>\nAnd"),
        ("gemma4_v5", "\n<channel|><turn|>\n<|turn>user"),
        ("gptoss", "<|end|><|start|>user"),
        ("muse_glimmer", "<|eot|><|start|>user"),
        ("deepseekv3", "\n</think>\n\n<｜end▁of▁sentence｜><｜User｜>"),
    ],
)
def test_reasoning_of_real_templates_is_closed_as_they_close_it(name, start):
    rule = AppendRule(trl_tokenizer(name))
    appended = rule.delta(ClosedTurn(finish_reason="length", reasoning_open=True), [USER])
    assert text_of(rule, appended).startswith(start)


@needs_trl
def test_what_depends_on_an_earlier_tool_result_is_told_apart():
    """DeepSeek V3 writes the outer mark of tool outputs once in a conversation."""
    rule = AppendRule(trl_tokenizer("deepseekv3"))
    first, later = (rule.delta(ClosedTurn(calls=(CALL,)), [RESULT], after_tools=after) for after in (False, True))
    mark = token(rule, "<｜tool▁outputs▁begin｜>")
    assert (mark in first.ids, mark in later.ids) == (True, False)


@pytest.mark.parametrize("kind", ["metaspace_first", "metaspace_always", "prepending", "byte_level_with_prefix"])
def test_text_that_continues_a_turn_gets_no_space_before_it(kind):
    text = "{% for m in messages %}<|im_start|>{{ m.content }}!<|im_end|>{% endfor %}"
    rule = AppendRule(tokenizer_for(text, kind=kind))
    first = rule.delta(ClosedTurn(), [USER]).ids[0]
    assert rule.tokenizer._backend.id_to_token(first) in {"!", "<0x21>", "<unk>"}


def test_of_control_tokens_that_begin_alike_the_longest_is_found():
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>>{% endfor %}"
    tokenizer = tokenizer_for(template, more=("<|im_end|>>", "<|im"))
    opening = AppendRule(tokenizer).opening([USER])
    assert opening.ids[-1] == tokenizer.controls.by_text["<|im_end|>>"].id
    assert list(opening.ids) == tokenizer.encode_scaffold("<|im_start|>And then?<|im_end|>>")


def history(turns):
    for number in range(turns):
        function = {"name": "look", "arguments": {"at": f"place {number}"}}
        call = {"id": f"call{number:05d}", "type": "function", "function": function}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"call{number:05d}", "content": f"result {number}"}


@needs_trl
@pytest.mark.parametrize("name", ["qwen3", "glm4moe", "gemma4_v5", "gptoss", "nemotron_3_nano"])
def test_a_long_history_is_taken_apart_without_rendering_it_message_by_message(name, monkeypatch):
    rule = AppendRule(trl_tokenizer(name))
    rendered, render = [], ChatTemplate.render

    def count_render(*arguments, **options):
        rendered.append(1)
        return render(*arguments, **options)

    monkeypatch.setattr(ChatTemplate, "render", count_render)
    messages = [USER, *history(20)]
    opening = rule.opening(messages)
    assert len(rendered) <= 10
    assert list(opening.ids) == rule.tokenizer.encode_scaffold(rule.template.render(messages))
    spans = [span for span in opening.spans if span.role == "tool"]
    assert len(spans) == 20
    for number, span in enumerate(spans):
        assert f"result {number}" in rule.tokenizer.decode(span.ids)
        assert "place" not in rule.tokenizer.decode(span.ids)
    said = [rule.tokenizer.decode(span.ids) for span in opening.spans if span.role == "assistant"]
    assert [f"place {number}" in text for number, text in zip(range(20), said, strict=False)] == [True] * 20
    assert not any("result" in text for text in said)
