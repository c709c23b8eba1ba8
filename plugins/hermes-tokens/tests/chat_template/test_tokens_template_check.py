"""The start-up check reports where rule and template differ, and what a template does not support."""

from __future__ import annotations

import pytest
from chatml_folder import TEMPLATE
from small_tokenizers import KINDS, tokenizer_for

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.chat_template.template_check import prove_template
from hermes_tokens.untrusted_text import PlainEncoder

TOOLS = ({"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}},)
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def prove_for(template, **options):
    kwargs = options.pop("template_kwargs", {})
    tools = options.pop("tools", ())
    return prove_template(AppendRule(tokenizer_for(template, **options), tools=tools, template_kwargs=kwargs))


def case(proof, name):
    return next(case for case in proof.cases if case.name == name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [{}, {"rstrip": True}, {"lstrip": True}])
def test_a_sound_template_is_exact_with_every_kind_of_tokenizer(kind, flags):
    proof = prove_for(TEMPLATE, kind=kind, tools=TOOLS, **flags)
    assert {case.name: case.result for case in proof.cases if case.result != "ok"} == {}
    assert proof.is_exact
    proof.require()


def test_a_history_that_changes_what_comes_after_a_turn_is_found():
    """The number of the message is in its text: no rule that looks at one turn can know it."""
    numbered = PLAIN.replace("{{ m.role }}", "{{ m.role }} {{ loop.index }}")
    proof = prove_for(numbered)
    assert not proof.is_exact
    assert case(proof, "user_message").result == "ok"
    with pytest.raises(ConfigError, match=r"the texts differ\n  template: .*tool 6.*\n  rule:     .*tool 5"):
        proof.require()


def test_ids_that_differ_where_the_texts_agree_are_found(monkeypatch):
    """A piece in the middle that gets a space before it, as it would at the start of a text."""
    tokenizer = tokenizer_for(PLAIN, kind="metaspace_first")
    encode = PlainEncoder.encode
    monkeypatch.setattr(PlainEncoder, "encode", lambda self, text, **_: encode(self, text, at_start=True))
    proof = prove_template(AppendRule(tokenizer))
    assert not proof.is_exact
    with pytest.raises(ConfigError, match="the texts agree but the ids differ"):
        proof.require()


def test_a_token_too_many_or_too_few_is_found(monkeypatch):
    tokenizer = tokenizer_for(TEMPLATE)
    encode = type(tokenizer).encode_scaffold
    extra = tokenizer.controls.by_text["<|im_end|>"].id
    for changed in (lambda self, text: [*encode(self, text), extra], lambda self, text: [extra, *encode(self, text)]):
        monkeypatch.setattr(type(tokenizer), "encode_scaffold", changed)
        assert case(prove_template(AppendRule(tokenizer)), "opening").result == "failed"


def test_tools_that_do_not_change_the_text_are_not_supported():
    proof = prove_for(PLAIN, tools=TOOLS)
    assert case(proof, "tools").result == "unsupported"
    assert not proof.is_exact
    with pytest.raises(ConfigError, match="support for tools, got one without: it does not list the tools"):
        proof.require()
    assert prove_for(PLAIN).is_exact


@pytest.mark.parametrize(
    ("tool", "reason"),
    [("{{ raise_exception('no tools here') }}", "no tools here"), ("", "leaves it out")],
)
def test_a_template_without_tool_messages_will_not_do_for_tools(tool, reason):
    text = "{{ tools | tojson }}" + PLAIN.replace("<|im_start|>", f"{{% if m.role == 'tool' %}}{tool}{{% else %}}", 1)
    text = text.replace("{% endfor %}", "{% endif %}{% endfor %}")
    with pytest.raises(ConfigError, match=rf"support for tool results, got one without: .*{reason}"):
        prove_for(text, tools=TOOLS).require()
    proof = prove_for(text)
    assert case(proof, "tool_result").result == "unsupported"
    assert proof.is_exact


def test_a_template_that_accepts_no_conversation_is_refused():
    proof = prove_for("{{ raise_exception('never') }}")
    with pytest.raises(ConfigError, match=r"conversation that starts with a user message, got one without.*never"):
        proof.require()


def test_the_report_has_every_case_and_why_one_is_not_supported():
    report = prove_for(PLAIN, tools=TOOLS).to_json()
    assert report["is_exact"] is False
    assert report["cases"]["tools"] == "unsupported"
    assert report["reasons"] == {"tools": "it does not list the tools, and no parser declares them"}
    assert set(report["cases"].values()) == {"ok", "unsupported"}
