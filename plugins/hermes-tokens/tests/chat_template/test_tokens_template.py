"""Chat templates are rendered as by transformers, and errors name the fault."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.chat_template.template import ChatTemplate, TemplateError, variables_of

USER = {"role": "user", "content": "hi"}


def test_blocks_leave_no_white_space_and_no_line_end():
    text = "{% for message in messages %}\n    {% if true %}\n{{ message.content }}\n    {% endif %}\n{% endfor %}\n"
    assert ChatTemplate(text).render([USER, USER]) == "hi\nhi\n"


def test_json_is_written_as_it_is_without_escapes_for_html_or_ascii():
    tool = {"b": "<é> & 'x'", "a": [1, 2]}
    assert ChatTemplate("{{ tools[0] | tojson }}").render([USER], tools=[tool]) == '{"b": "<é> & \'x\'", "a": [1, 2]}'


def test_json_takes_the_options_that_templates_use():
    template = ChatTemplate("{{ tools[0] | tojson(indent=2, sort_keys=true, ensure_ascii=true) }}")
    assert template.render([USER], tools=[{"b": "é", "a": 1}]) == '{\n  "a": 1,\n  "b": "\\u00e9"\n}'


def test_the_mark_of_what_the_model_writes_renders_nothing():
    text = "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.content }}{% endgeneration %};{% endfor %}"
    assert ChatTemplate(text).render([USER, USER]) == "1hi;2hi;"


def test_a_loop_may_be_left():
    text = "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
    assert ChatTemplate(text).render([USER, USER, USER]) == "hi"


def test_the_date_is_that_of_the_templates_making():
    times = iter([datetime(2026, 1, 2, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)])
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: next(times))
    assert [template.render([USER]), template.render([USER])] == ["02 Jan 2026", "02 Jan 2026"]


def test_special_tokens_and_arguments_are_variables():
    template = ChatTemplate("{{ bos_token }}{{ thinking }}", special_tokens={"bos_token": "<s>"})
    assert template.using({"thinking": 1}).render([USER]) == "<s>1"


@pytest.mark.parametrize(("tools", "shown"), [((), "none"), (({"name": "look"},), "1")])
def test_no_tools_are_none(tools, shown):
    template = ChatTemplate("{% if tools is none %}none{% else %}{{ tools | length }}{% endif %}")
    assert template.render([USER], tools=tools) == shown


@pytest.mark.parametrize("given", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize("read", ["reasoning_content", "thinking"])
def test_reasoning_is_found_under_each_name_that_templates_read(given, read):
    template = ChatTemplate(f"{{{{ messages[0].{read} }}}}")
    assert template.render([{"role": "assistant", given: "hm"}]) == "hm"


def test_a_syntax_error_names_its_line():
    with pytest.raises(TemplateError, match=r"syntax error in line 3: .*\n  → correct chat_template.jinja") as caught:
        ChatTemplate("a\nb\n{% if %}")
    assert caught.value.line == 3


def test_a_refusal_names_the_line_the_roles_and_the_templates_own_words():
    template = ChatTemplate("{% if true %}\n{{ raise_exception('Roles must alternate!') }}\n{% endif %}")
    with pytest.raises(
        TemplateError, match=r"\(user, user\) in line 2: TemplateError: Roles must alternate!"
    ) as caught:
        template.render([USER, USER])
    assert isinstance(caught.value, ConfigError)
    assert caught.value.line == 2


@pytest.mark.parametrize("text", ["{{ messages[0].nothing.at_all }}", "{{ 1 / 0 }}", "{{ messages.append(1) }}"])
def test_every_exception_of_a_template_is_a_template_error(text):
    with pytest.raises(TemplateError, match="refuses the messages"):
        ChatTemplate(text).render([USER])


def test_a_template_cannot_reach_out_of_its_sandbox():
    with pytest.raises(TemplateError, match="SecurityError"):
        ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}").render([USER])


def test_additional_arguments_need_no_second_compilation(monkeypatch):
    template = ChatTemplate("{{ a }}{{ b }}{{ strftime_now('%Y') }}").using({"a": 1})
    monkeypatch.setattr("hermes_tokens.chat_template.template._compile", None)
    other = template.using({"b": 2}, clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    assert other.render([USER]) == "122030"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{ messages }}{% if enable_thinking is defined and not enable_thinking %}x{% endif %}", {"enable_thinking"}),
        ("{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}", {"thinking"}),
        ("{% set effort = reasoning_effort | default('medium') %}{{ effort }}", {"reasoning_effort"}),
        ("{% macro end() %}{{ thinking_budget }}{% endmacro %}{{ end() }}", {"thinking_budget"}),
        ("{% set own = 1 %}{{ own }}", set()),
    ],
)
def test_the_variables_that_a_template_reads_from_outside_are_known(text, names):
    assert variables_of(text) - {"messages"} == names
