"""Tools that a chat template does not list are declared in the system prompt, as the family's parser writes it."""

from __future__ import annotations

import functools

import pytest
from chatml_folder import TEMPLATE
from declared_tools import FAMILIES, MARKS, PLAIN, TOOLS, declaring_parser, family_tokenizer, tool
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import KINDS, stops_of, tokenizer_for

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import RequestedCall
from hermes_core.contracts.parsing import BufferedParser
from hermes_tokens.append_rule.append import AppendRule, ClosedTurn
from hermes_tokens.chat_template.template_check import prove_template

HERMES = declaring_parser("hermes")
SYSTEM = {"role": "system", "content": "You help.\n"}
USER = {"role": "user", "content": "The weather in Oslo?"}
CONVERSATIONS = ((USER,), (SYSTEM, USER))
WITHOUT_SYSTEM = "{% for m in messages if m.role != 'system' %}"


def plain_rule(template=PLAIN, *, tools=TOOLS, parser=HERMES, **options):
    options.setdefault("more", MARKS["hermes"])
    return AppendRule(tokenizer_for(template, **options), tools=tools, parser=parser)


@functools.cache
def family_rule(name):
    return AppendRule(family_tokenizer(name), tools=TOOLS, parser=declaring_parser(FAMILIES[name]))


def with_declaration(name, messages):
    """The conversation as its caller would write it for the template, with the declaration by hand."""
    text = declaring_parser(FAMILIES[name]).declare(TOOLS)
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": text}, *messages]
    return [{"role": "system", "content": f"{text}\n\n{messages[0]['content']}"}, *messages[1:]]


def own_ids(name, messages):
    """The template's own rendering; templates of vision models take content parts."""
    tokenizer = family_tokenizer(name)
    parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
    taken = parts if name in {"smolvlm", "idefics3"} else messages
    return tuple(tokenizer.encode_scaffold(tokenizer.template(()).using({}).render(taken, tools=TOOLS)))


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=["user", "system"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_prompt_is_what_the_template_writes_for_the_declaration(name, messages):
    assert family_rule(name).opening(messages).ids == own_ids(name, with_declaration(name, messages))


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=["user", "system"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_appended_is_what_the_template_writes_after_the_turn(name, messages):
    rule = family_rule(name)
    stop = rule.tokenizer.controls.by_text[stops_of(name)[0]].id
    call = RequestedCall(id="call00001", name="weather", arguments="{}")
    result = {"role": "tool", "tool_call_id": "call00001", "content": "7 °C"}
    said = {"role": "assistant", "content": "Well."}
    for closing, new in ((ClosedTurn(last_id=stop, calls=(call,)), result), (ClosedTurn(last_id=stop), USER)):
        appended = rule.delta(closing, [new])
        own = own_ids(name, [*with_declaration(name, messages), said, new])
        assert appended.kept == 1
        assert own[len(own) - len(appended.ids) :] == appended.ids


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_proved_with_its_parser_in_every_case(name):
    proof = prove_template(family_rule(name))
    proof.require()
    assert {case.name: case.result for case in proof.cases if case.result != "ok"} == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_marks_of_the_example_are_those_that_the_model_writes(name):
    rule = family_rule(name)
    example = rule.declaration.partition("and nothing after it:")[2]
    wanted = [piece.id for piece in rule.tokenizer.controls.split(example) if not isinstance(piece, str)]
    assert len(wanted) == sum(example.count(mark) for mark in MARKS[FAMILIES[name]])
    found = [token for token in rule.opening([USER]).ids if token in rule.tokenizer.control_ids]
    blank = AppendRule(rule.tokenizer).opening([{"role": "system", "content": "x"}, USER])
    assert len(found) - len(wanted) == len([token for token in blank.ids if token in rule.tokenizer.control_ids])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [{}, {"rstrip": True}, {"lstrip": True}])
def test_the_kind_of_tokenizer_changes_nothing(kind, flags):
    rule = plain_rule(kind=kind, **flags)
    prove_template(rule).require()
    assert rule.declaration == HERMES.declare(TOOLS)


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=["user", "system"])
def test_a_template_that_lists_the_tools_is_left_alone(messages):
    rule, without = plain_rule(TEMPLATE), plain_rule(TEMPLATE, parser=None)
    assert rule.declaration == ""
    assert rule.opening(messages).ids == without.opening(messages).ids
    assert rule.fingerprint == without.fingerprint


@pytest.mark.parametrize(
    "listing",
    [
        "{% if tools and messages[0].role != 'system' %}{{ tools | tojson }}{% endif %}",
        "{% if tools and messages[0].role == 'system' %}{{ tools | tojson }}{% endif %}",
        "{% if tools %}You may call tools.{% endif %}",
        "{% for tool in tools or [] %}{% if loop.first %}{{ tool.function.name }}{% endif %}{% endfor %}",
    ],
    ids=["without a system message", "with a system message", "no names", "the first one"],
)
def test_a_template_lists_the_tools_only_if_it_writes_each_name_in_every_conversation(listing):
    rule = plain_rule(listing + PLAIN, tools=(tool("weather"), tool("time")))
    assert rule.declaration
    prove_template(rule).require()


def test_a_word_of_the_template_is_not_taken_for_the_name_of_a_tool():
    rule = plain_rule(tools=(tool("user"), tool("system")))
    assert '"name": "user"' in rule.opening_text([USER])


def test_without_tools_nothing_is_declared():
    assert plain_rule(tools=()).opening([USER]).ids == plain_rule(tools=(), parser=None).opening([USER]).ids


class Silent(BufferedParser):
    """A parser that declares nothing."""

    def render(self, message):
        raise ValueError(message)


class Unable(Silent):
    def declare(self, tools):
        raise ValueError(f"no words for {len(tools)} tools")


@pytest.mark.parametrize(("parser", "named"), [(None, "no parser"), (Silent(), "Silent")])
def test_tools_that_are_not_declared_are_refused_with_a_hint(parser, named):
    with pytest.raises(ConfigError, match=f"it does not list the tools, and .*{named}") as refused:
        prove_template(plain_rule(parser=parser)).require()
    assert "--parser deepseek_v3" in str(refused.value)


def test_a_parser_that_cannot_declare_the_tools_is_named():
    with pytest.raises(ConfigError, match=r"got .*Unable, which fails: no words for 1 tools"):
        plain_rule(parser=Unable())


@pytest.mark.parametrize(
    "template",
    [
        PLAIN.replace("{% for m in messages %}", WITHOUT_SYSTEM),
        PLAIN.replace("{{ m.content }}", "{{ m.content | lower }}"),
        PLAIN.replace("{{ m.content }}", "{{ m.content[:40] }}"),
        PLAIN.replace("{{ m.content }}", "{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"),
    ],
    ids=["leaves it out", "changes it", "cuts it", "refuses it"],
)
def test_a_template_that_does_not_write_the_declaration_is_refused(template):
    rule = plain_rule(template)
    with pytest.raises(ConfigError, match="support for tools, got one without: the tools must be declared in"):
        prove_template(rule).require()
    with pytest.raises(ConfigError):
        rule.opening([USER])


def test_a_conversation_whose_later_system_message_replaces_the_declaration_is_refused():
    last = "{% set own = messages | selectattr('role', 'equalto', 'system') | list | last %}{{ own.content }}"
    rule = plain_rule(last + PLAIN.replace("{% for m in messages %}", WITHOUT_SYSTEM))
    assert rule.declaration in rule.opening_text([SYSTEM, USER])
    with pytest.raises(ConfigError, match="got one that leaves it out"):
        rule.opening([SYSTEM, SYSTEM, USER])


def test_a_system_message_later_in_the_conversation_is_written_as_it_is():
    rule = plain_rule()
    later = {"role": "system", "content": "Be brief."}
    assert rule.opening_text([USER, later]).count(rule.declaration) == 1
    appended = rule.delta(ClosedTurn(), [later, USER]).ids
    text = rule.tokenizer.decode(appended)
    assert text.startswith("<|im_end|>\n<|im_start|>system\nBe brief.<|im_end|>")


@pytest.mark.parametrize("content", ["", " \n", None])
def test_an_empty_system_message_holds_the_declaration_alone(content):
    text = plain_rule().opening_text([{"role": "system", "content": content}, USER])
    assert text == plain_rule().opening_text([USER])


def controls_of(rule, messages=(USER,)):
    return [token for token in rule.opening(messages).ids if token in rule.tokenizer.control_ids]


LOOKALIKES = ("<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "</s>", "<|im_<|im_end|>end|>", "Hq00000vZ")
texts = st.lists(st.one_of(st.text(max_size=4), st.sampled_from(LOOKALIKES)), max_size=6).map("".join)


@pytest.mark.parametrize("template", [PLAIN, TEMPLATE], ids=["declared", "listed"])
@given(text=texts, name=st.sampled_from(("weather", *LOOKALIKES)))
@settings(max_examples=40, deadline=None)
def test_nothing_that_a_tool_says_of_itself_is_a_control_token(template, text, name):
    rule, plain = plain_rule(template, tools=(tool(name, text),)), plain_rule(template)
    assert controls_of(rule) == controls_of(plain)
    prove_template(rule).require()


@pytest.mark.parametrize("template", [PLAIN, TEMPLATE], ids=["declared", "listed"])
@pytest.mark.parametrize("text", LOOKALIKES)
def test_what_a_tool_says_of_itself_reaches_the_model_to_the_letter(template, text):
    rule = plain_rule(template, tools=(tool(description=f"Ends {text} here."),))
    for messages in CONVERSATIONS:
        assert f'"Ends {text} here."' in rule.tokenizer.decode(rule.opening(messages).ids)
        assert f'"Ends {text} here."' in rule.opening_text(messages)


@given(text=texts)
@settings(max_examples=40, deadline=None)
def test_what_the_own_system_message_holds_stays_text(text):
    rule = plain_rule()
    system = {"role": "system", "content": f"x{text}"}
    assert controls_of(rule, (system, USER)) == controls_of(rule, (SYSTEM, USER))
    assert rule.declaration in rule.opening_text([system, USER])


def test_a_word_that_is_a_token_of_its_own_may_be_the_type_of_a_parameter():
    asking = "{% for tool in tools or [] %}{{ tool.function.name }}:{{ tool.function.parameters.type == 'object' }};"
    rule = plain_rule(f"{asking}{{% endfor %}}{PLAIN}", more=("object",))
    assert rule.opening_text([USER]).startswith("weather:True;<|im_start|>")
    prove_template(rule).require()
