"""How parsers from metadata read texts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from declarative_samples import CALL, CHANNELS, MARKUP, PLAIN, alter, calls, markup, read, tool

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers import from_response_template


class TestCalls:
    def test_content_keeps_its_space_and_loses_its_marks(self):
        result = read(PLAIN, '  Yes. \n<call>{"name": "f", "arguments": {"a": 1}}</call><|end|>\n')
        assert (result.content, calls(result)) == ("  Yes. ", [("f", {"a": 1})])
        assert read(PLAIN, "Yes.<|end|>").content == "Yes."
        assert read(PLAIN, "Yes.<|end|>No.").content == "Yes.No."

    def test_a_closing_mark_in_a_string_closes_nothing(self):
        result = read(PLAIN, '<call>{"name": "f", "arguments": {"a": "</call><call>"}}</call>')
        assert calls(result) == [("f", {"a": "</call><call>"})]

    def test_arguments_keep_their_text(self):
        result = read(PLAIN, '<call>{"name": "f", "arguments": {"a":1.0,  "b": "\\u00e9"}}</call>')
        assert result.calls[0].arguments == '{"a":1.0,  "b": "\\u00e9"}'

    def test_several_literals_may_open_and_close(self):
        template = alter(PLAIN, "tool_calls", open=["<call>", "<c>"], close=["</call>", "</c>", "</call>!"])
        body = '{"name": "f", "arguments": {}}'
        result = read(template, f"<call>{body}</c> <c>{body}</call>!<c>{body}</call>")
        assert [attempt.raw[-9:] for attempt in result.attempts] == [": {}}</c>", "}</call>!", "}}</call>"]

    def test_a_field_without_closing_ends_with_its_json(self):
        template = alter(PLAIN, "tool_calls", close=None)
        result = read(template, '<call>{"name": "f", "arguments": {}} and so on')
        assert (calls(result), result.content) == ([("f", {})], " and so on")
        assert result.attempts[0].status is AttemptStatus.OK

    def test_the_model_s_own_id_is_kept(self):
        template = alter(
            PLAIN,
            "tool_calls",
            transform={"id": "{content.ref}", "function": {"name": "{content.fn}", "arguments": "{content.in}"}},
        )
        result = read(template, '<call>{"fn": "f", "in": {}, "ref": "x1"}</call>')
        assert (result.calls[0].id, result.calls[0].wire_id) == ("x1", "x1")

    def test_a_name_may_be_fixed_or_arguments_be_a_member(self):
        fixed = alter(PLAIN, "tool_calls", transform={"name": "search", "arguments": "{content.query}"})
        assert calls(read(fixed, '<call>{"query": {"q": 1}}</call>')) == [("search", {"q": 1})]
        assert calls(read(fixed, "<call>{}</call>")) == [("search", {})]

    def test_a_list_keeps_its_good_members(self):
        text = '<call>[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": }}, {"name": "h"}]</call>'
        result = read(PLAIN, text)
        assert [name for name, _ in calls(result)] == ["f", "h"]
        assert [attempt.status.value for attempt in result.attempts] == ["ok", "invalid_json", "ok"]

    @pytest.mark.parametrize(
        ("text", "status"),
        [
            ('<call>{"name": "f", "arguments": {}}', "unclosed"),
            ('<call>{"name": "f", "arguments": {}}</ca', "unclosed"),
            ('<call>{"name": "f", "argu', "truncated"),
            ('<call>{"name": "f", "arguments": {,}}</call>', "invalid_json"),
            ('<call>{"arguments": {}}</call>', "missing_name"),
            ('<call>{"name": "f", "arguments": [1]}</call>', "invalid_json"),
            ('<call>[{"name": "f", "arguments": {}}, ', "unclosed"),
            ("<call>[1]</call>", "invalid_json"),
        ],
    )
    def test_an_attempt_says_how_it_went(self, text: str, status: str):
        assert [attempt.status.value for attempt in read(PLAIN, text).attempts] == [status]

    @pytest.mark.parametrize("text", ["<call>[]</call>", "<call></call>", "<call> and </call>"])
    def test_marks_around_what_is_no_call_are_an_attempt(self, text: str):
        result = read(PLAIN, text)
        assert (result.content, [attempt.status.value for attempt in result.attempts]) == (None, ["invalid_json"])

    @pytest.mark.parametrize("text", ["The mark <call> begins a call.", "<call>"])
    def test_a_mark_without_a_body_is_text(self, text: str):
        result = read(PLAIN, text)
        assert (result.content, result.attempts) == (text, ())

    def test_the_special_token_that_a_server_cuts_off_costs_no_call(self):
        call = {
            "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
            "close_pattern": r"\}<\|eot\|>\s*",
        }
        template = alter(PLAIN, "tool_calls", open=None, close=None, **call, transform=CALL)
        text = '{"name": "f", "parameters": {"a": {}}}'
        assert [attempt.status.value for attempt in read(template, f"{text}<|eot|>").attempts] == ["ok"]
        result = read(template, text)
        assert (calls(result), result.attempts[0].status.value) == ([("f", {"a": {}})], "unclosed")
        assert result.content is None

    def test_json_of_its_own_is_read_and_handed_on_as_json(self):
        arguments = {"unquoted_keys": True, "string_delims": [["<<", ">>"]]}
        template = alter(
            PLAIN, "tool_calls", content_args=arguments, open=None, open_pattern=r"<call>(?P<name>\w+)", transform=CALL
        )
        result = read(template, '<call>f{a:<<x, "y": }>>,b-c:{d:[1,true,<<>>]},"e":-1.5e3}</call>')
        assert calls(result) == [("f", {"a": 'x, "y": }', "b-c": {"d": [1, True, ""]}, "e": -1500.0})]
        with pytest.raises(ValueError, match="not how to write it"):
            from_response_template(template).render({"tool_calls": [{"function": {"name": "f", "arguments": {}}}]})

    def test_an_opening_may_only_separate_calls(self):
        opening = r"(?:<call>|,\s*)(?P<name>\w+)\("
        quoted = {"string_delims": [["'", "'"]], "allow_non_json": True}
        pairs = r"(?P<key>\w+)=(?P<value>'[^']*'|[^,)]*)"
        template = alter(
            MARKUP, "tool_calls", open_pattern=opening, close_pattern=r"\)(?:</call>)?", close=None,
            content_args={"tag_pattern": pairs, "value_parser": {"name": "json", "args": quoted}},
        )  # fmt: skip
        result = read(template, "Well, say(so) <call>f(a='x, (y)', b=2), g(), h(c=z)</call> and, then(x)")
        assert calls(result) == [("f", {"a": "x, (y)", "b": 2}), ("g", {}), ("h", {"c": "z"})]
        assert result.content == "Well, say(so)  and, then(x)"


class TestTags:
    TEXT = "<fn=f><a>\n    x\n</arg><b> 5 </arg></fn>"

    def test_a_value_is_read_by_the_schema_and_its_indentation_stays(self):
        result = read(MARKUP, self.TEXT, tool("f", a="string", b="integer"))
        assert calls(result) == [("f", {"a": "    x", "b": 5})]
        assert calls(read(MARKUP, self.TEXT)) == [("f", {"a": "    x", "b": "5"})]

    @pytest.mark.parametrize(
        ("parser", "text", "value"),
        [
            ({"name": "json", "args": {"allow_non_json": True}}, "[1, 2]", [1, 2]),
            ({"name": "json", "args": {"allow_non_json": True}}, "plain", "plain"),
            ({"name": "json"}, "plain", "plain"),
            ({"name": "int"}, "5", 5),
            ({"name": "int"}, "5.5", "5.5"),
            ({"name": "float"}, "5", 5.0),
            ({"name": "bool"}, "True", True),
            ({"name": "bool"}, "perhaps", "perhaps"),
            ({"name": "text"}, "5", "5"),
        ],
    )
    def test_without_a_schema_the_metadata_says_how(self, parser: dict[str, Any], text: str, value: Any):
        result = read(markup(value_parser=parser), f"<fn=f><a>{text}</arg></fn>")
        assert calls(result) == [("f", {"a": value})]
        assert type(calls(result)[0][1]["a"]) is type(value)

    def test_the_same_parameter_twice_is_the_last_or_a_list(self):
        text = "<fn=f><a>x</arg><a>y</arg><a>z</arg></fn>"
        assert calls(read(MARKUP, text)) == [("f", {"a": "z"})]
        assert calls(read(markup(merge_duplicates=True), text)) == [("f", {"a": ["x", "y", "z"]})]

    def test_a_missing_closing_tag_ends_at_the_next_tag(self):
        result = read(MARKUP, "<fn=f><a>x<b>y</arg></fn>")
        assert (calls(result), result.attempts[0].reason) == (
            [("f", {"a": "x", "b": "y"})],
            "a: its closing tag is missing",
        )

    def test_a_parameter_that_does_not_end_is_no_call_and_costs_none(self):
        result = read(MARKUP, "<fn=f><a>x</ag></fn><fn=g><b>y</arg></fn>")
        assert calls(result) == [("g", {"b": "y"})]
        assert [attempt.status.value for attempt in result.attempts] == ["invalid_json", "ok"]

    @pytest.mark.parametrize("text", ["<fn=f><a>x</arg>", "<fn=f><a>x", "<fn=f>", "<fn=f><a>x</arg><b"])
    def test_a_call_that_is_cut_off_is_truncated(self, text: str):
        assert [attempt.status.value for attempt in read(MARKUP, text).attempts] == ["truncated"]

    def test_lines_are_read_as_pairs(self):
        template = alter(MARKUP, "tool_calls", content="kv-lines", content_args={"value_parser": {"name": "json"}})
        result = read(template, "<fn=f>\na: 1\nno pair\n b : [2, 3] \n</fn> done")
        assert (calls(result), result.content) == ([("f", {"a": 1, "b": [2, 3]})], " done")
        assert [attempt.status.value for attempt in read(template, "<fn=f>a: 1").attempts] == ["truncated"]
        assert calls(read(template, "<fn=f>a: 1<fn=g>b: 2</fn>")) == [("f", {"a": 1}), ("g", {"b": 2})]

    def test_calls_are_written_so_that_they_read_back(self):
        parser = from_response_template(MARKUP)
        message = {"content": "Hi.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "  x\n", "b": [1]}}}]}
        text = parser.render(message)
        assert text == "Hi.<fn=f><a>\n  x\n\n</arg><b>\n[1]\n</arg></fn>"
        with pytest.raises(ValueError, match="cannot be written in this format"):
            parser.render({"tool_calls": [{"function": {"name": "f", "arguments": {"a": "</arg>"}}}]})


class TestRegions:
    def test_content_and_reasoning_have_marks_of_their_own(self):
        parts = (
            "<|to|>self<|text|>hm<|done|>",
            "<|to|>user<|text|>\n Hello \n<|done|>",
            '<|to|>tool.f x<|text|>{"a": 1}<|call|>',
        )
        text = "<|turn|>model".join(parts)
        result = read(CHANNELS, text)
        assert (result.reasoning, result.content, calls(result)) == ("hm", "Hello", [("f", {"a": 1})])

    def test_content_is_told_as_it_comes(self):
        stream = from_response_template(CHANNELS).stream()
        told = [
            event.text
            for piece in ("<|to|>user<|text|>He", "llo ", "you", "<|do", "ne|>")
            for event in stream.feed(piece)
        ]
        assert told == ["He", "llo", " you"]
        stream.finish()
        assert stream.result().content == "Hello you"

    def test_what_stands_outside_the_marks_is_not_lost(self):
        result = read(CHANNELS, "So: <|to|>user<|text|>yes<|done|> that is it")
        assert result.content == "So: yes that is it"

    def test_content_that_does_not_end_is_content(self):
        assert read(CHANNELS, "<|to|>user<|text|>Hello").content == "Hello"
        assert read(CHANNELS, "<|to|>self<|text|>Hello").reasoning == "Hello"

    def test_an_opening_does_not_reach_over_another(self):
        result = read(CHANNELS, '<|to|>tool.f x|text|>{"a": 1}<|call|><|to|>tool.g x<|text|>{"b": 2}<|call|>')
        assert calls(result) == [("g", {"b": 2})]

    def test_a_header_in_front_of_a_mark_belongs_to_it(self):
        header = r"(?:<\|from\|>)?[^<]*<\|%s\|>"
        fields = {
            "content": {"open_pattern": header % "text", "close": "<|done|>", "repeats": True, "join": ""},
            "tool_calls": {
                "open_pattern": header % "tool",
                "close": "<|done|>",
                "content": "json",
                "transform": {"function": {"name": "{content.name}", "arguments": "{content.args}"}},
            },
        }
        text = 'me<|text|>Hi <|done|><|from|>me<|text|>there<|done|><|from|>f<|tool|>{"name": "f", "args": {}}<|done|>'
        result = read({"start_anchor": "<|from|>", "fields": fields}, text)
        assert (result.content, calls(result)) == ("Hithere", [("f", {})])
        kept = copy.deepcopy(fields)
        kept["content"]["content_args"] = {"strip": False}
        assert read({"start_anchor": "<|from|>", "fields": kept}, text).content == "Hi there"

    def test_a_message_is_written_with_the_marks(self):
        message = {
            "reasoning_content": "hm",
            "content": "Hi",
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        }
        text = from_response_template(CHANNELS).render(message)
        assert text == "<|to|>self<|text|>hm<|done|><|to|>user<|text|>Hi<|done|><|to|>tool.f<|text|>{}<|call|>"

    @pytest.mark.parametrize("key", ["thinking", "tool_calls"])
    def test_what_a_template_has_no_field_for_cannot_be_written(self, key: str):
        fields = {name: field for name, field in PLAIN["fields"].items() if name != key}
        parser = from_response_template({"start_anchor": "x", "fields": fields})
        message = {"reasoning_content": "hm", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
        with pytest.raises(ValueError, match="this template has no field"):
            parser.render(message)


class TestReasoning:
    @pytest.mark.parametrize("opening", [r"(?=[\s\S]*?</think>)", r"(?:^|<think>\s*)", r"\s*<think>\n?"])
    def test_a_lone_closing_mark_tells_that_the_prompt_opened_it(self, opening: str):
        template = alter(PLAIN, "thinking", open=None, open_pattern=opening)
        result = read(template, "hm\n</think>\n\nYes.")
        assert (result.reasoning, result.content) == ("hm", "Yes.")
        assert read(template, "Yes.").content == "Yes."

    def test_space_around_the_closing_mark_is_its_own(self):
        template = alter(PLAIN, "thinking", close=None, close_pattern=r"</think>\s*")
        result = read(template, "<think>\nhm\n</think>\n\nYes.")
        assert (result.reasoning, result.content) == ("hm", "Yes.")
