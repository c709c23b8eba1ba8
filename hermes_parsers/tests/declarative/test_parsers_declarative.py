"""Parsers from metadata: which templates are accepted, and which are refused with which message."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from declarative_samples import CHANNELS, MARKUP, PLAIN, alter, calls, markup, read
from hypothesis import given, settings
from hypothesis import strategies as st

import hermes_parsers
from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.parsing import ToolCallParser
from hermes_parsers import from_response_template, get_parser
from hermes_parsers.declarative.patterns.matchers import FAIL, WAIT, Subject, compile_pattern
from hermes_parsers.declarative.patterns.syntax import PatternError, read_pattern
from hermes_testing.registries import isolated_registry


class TestSources:
    TEXT = '<call>{"name": "f", "arguments": {}}</call>'

    def test_a_template_may_be_a_mapping_or_its_json(self):
        for source in (
            PLAIN,
            json.dumps(PLAIN),
            {"response_template": PLAIN},
            json.dumps({"response_template": PLAIN}),
        ):
            assert calls(from_response_template(source).parse(self.TEXT)) == [("f", {})]

    @pytest.mark.parametrize("kind", [str, Path])
    def test_a_template_may_be_in_a_tokenizer_s_file_or_a_model_s_folder(self, tmp_path: Path, kind: type):
        file = tmp_path / "tokenizer_config.json"
        file.write_text(json.dumps({"eos_token": "<eos>", "response_template": PLAIN}), encoding="utf-8")
        for path in (file, tmp_path):
            parser = from_response_template(kind(path))
            assert calls(parser.parse(self.TEXT)) == [("f", {})]

    def test_a_template_may_have_another_key(self):
        assert calls(from_response_template({"mine": PLAIN}, name="mine").parse(self.TEXT)) == [("f", {})]

    @pytest.mark.parametrize("token", ["<eos>", {"content": "<eos>", "lstrip": False}])
    def test_the_tokenizer_s_end_of_text_is_no_content(self, token: Any):
        config = {"eos_token": token, "response_template": PLAIN}
        assert read(config, "Hello.<eos>").content == "Hello."

    def test_the_parser_is_what_the_contract_asks_for(self):
        assert isinstance(from_response_template(PLAIN), ToolCallParser)

    def test_the_package_offers_it(self):
        assert hermes_parsers.from_response_template is from_response_template

    @pytest.mark.parametrize(
        ("source", "says"),
        [
            ("no such folder", "cannot be read from 'no such folder'.*give the path of a tokenizer_config.json"),
            ("{nothing", "the text is not valid JSON.*json.tool"),
            ("{}", "has no 'response_template', and is not a template itself: its keys are none"),
            ({"chat_template": ""}, "its keys are 'chat_template'.*hermes-core parsers list"),
            ({"response_template": []}, r"response_template: expected an object .* got \[\]"),
            (3, "source: expected a mapping, JSON text, or the path .* got 3"),
            ("bad\0path", "cannot be read from"),
        ],
    )
    def test_what_is_no_source_is_refused(self, source: Any, says: str):
        with pytest.raises(ConfigError, match=f"(?s){says}"):
            from_response_template(source)

    def test_a_file_that_is_no_json_is_refused_by_its_name(self, tmp_path: Path):
        file = tmp_path / "tokenizer_config.json"
        for text in ("[1]", "no", "\ufeff"):
            file.write_text(text, encoding="utf-8")
            with pytest.raises(ConfigError, match=r"tokenizer_config\.json"):
                from_response_template(file)

    @pytest.mark.parametrize("key", ["response_template", "response_schema"])
    def test_the_older_schema_is_refused_with_what_to_use_instead(self, key: str):
        schema = {"x-regex": "(?P<content>.*)", "type": "object", "properties": {"content": {"type": "string"}}}
        with pytest.raises(
            ConfigError, match=r"(?s)response_schema.*transformers 5\.13 replaced.*hermes-core parsers list"
        ):
            from_response_template({key: schema})
        with pytest.raises(ConfigError, match="response_schema"):
            from_response_template(schema)


class TestTheComponent:
    def test_a_registry_makes_it_from_options(self, tmp_path: Path):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"response_template": PLAIN}), encoding="utf-8")
        registry = isolated_registry("hermes_parsers.plugin")
        for name in ("response_template", "hf"):
            for source in (PLAIN, str(tmp_path), json.dumps(PLAIN)):
                parser = registry.create("parser", name, {"source": source})
                assert calls(parser.parse(TestSources.TEXT)) == [("f", {})]

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({}, "source is missing"),
            ({"sauce": 1}, "no option 'sauce'.*did you mean 'source'"),
            ({"source": {"fields": {}}}, "fields: expected an object with at least one field"),
        ],
    )
    def test_bad_options_are_refused(self, options: dict[str, Any], says: str):
        with pytest.raises(ConfigError, match=f"(?s){says}"):
            isolated_registry("hermes_parsers.plugin").create("parser", "response_template", options)

    def test_it_can_be_got_by_name_with_a_source_only(self):
        assert calls(get_parser("hf", source=PLAIN).parse(TestSources.TEXT)) == [("f", {})]
        with pytest.raises(ConfigError, match=r"(?s)needs a source.*source: /models/mine"):
            get_parser("response_template")

    def test_options_of_every_parser_are_taken(self):
        text = f"<think>{TestSources.TEXT}</think>"
        assert from_response_template(PLAIN).parse(text).calls == ()
        assert calls(from_response_template(PLAIN, promote_drafts=True).parse(text)) == [("f", {})]
        opened = from_response_template(PLAIN, reasoning_opened=True).parse("hm</think>Yes.")
        assert (opened.reasoning, opened.content) == ("hm", "Yes.")
        with pytest.raises(ConfigError, match=r"(?s)reasoning_opened.*omit reasoning_opened"):
            from_response_template(CHANNELS, reasoning_opened=True)

    def test_importing_it_imports_nothing_heavy(self):
        heavy = "openai", "pydantic", "asyncio", "aiohttp", "transformers"
        code = (
            "import sys; import hermes_parsers.declarative.component, hermes_parsers.declarative.bodies.tag_body; "
            f"from hermes_parsers import from_response_template as make; make({MARKUP!r}); "
            f"print([name for name in {heavy!r} if name in sys.modules])"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]"


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("template", "says"),
        [
            ({**PLAIN, "feilds": {}}, "has no key 'feilds'.*did you mean 'fields'"),
            ({**PLAIN, "version": 2}, r"version: expected 1, .* got 2"),
            ({**PLAIN, "defaults": 3}, "defaults: expected an object, got 3"),
            ({"start_anchor": "x"}, "fields: expected an object with at least one field, got None"),
            ({**PLAIN, "start_anchor": []}, r"start_anchor: expected a text, or a list of texts, got \[\]"),
            ({**PLAIN, "start_anchor_pattern": "x"}, "both 'start_anchor' and 'start_anchor_pattern'"),
            (alter(PLAIN, "citations", open="["), "fields.citations: expected one of thinking,"),
            (alter(PLAIN, "reasoning", open="[", close="]"), "reasoning under several names"),
            (alter(PLAIN, "tool_calls", open=None), "can lack 'open'.* got 'tool_calls', 'content'"),
            (alter(PLAIN, "thinking", open=None), "only 'content' can lack 'open'"),
            (alter(PLAIN, "tool_calls", opne="x"), "fields.tool_calls has no key 'opne'.*did you mean 'open'"),
            (alter(PLAIN, "tool_calls", open=""), "tool_calls.open: expected texts that are not empty, got ''"),
            (alter(PLAIN, "tool_calls", open=[1]), "tool_calls.open: expected texts that are not empty, got 1"),
            (alter(PLAIN, "tool_calls", open_pattern="<a>"), "both 'open' and 'open_pattern'"),
            (alter(PLAIN, "tool_calls", repeats="yes"), "tool_calls.repeats: expected true or false, got 'yes'"),
            (alter(PLAIN, "tool_calls", content="yaml"), "tool_calls.content: expected one of.* got 'yaml'"),
            (alter(PLAIN, "tool_calls", content="text"), "content 'text'.*the opening must capture the name"),
            (alter(PLAIN, "tool_calls", content_args=[]), r"content_args: expected an object, got \[\]"),
            (alter(PLAIN, "tool_calls", content_args={"lax": 1}), "expected string_delims, unquoted_keys or"),
            (alter(PLAIN, "tool_calls", content_args={"string_delims": ["'"]}), "a list of pairs of texts"),
            (alter(PLAIN, "tool_calls", transform="{content.x}"), "transform: expected a mapping like"),
            (alter(PLAIN, "tool_calls", transform={"name": "a {content}"}), "expected a placeholder alone"),
            (alter(PLAIN, "tool_calls", transform={"name": "{other}"}), "expected placeholders for a capture"),
            (alter(PLAIN, "tool_calls", transform_each=True, transform=None), "'transform_each' needs 'transform'"),
            (alter(PLAIN, "tool_calls", join=","  , repeats=None), "'join' needs 'repeats'"),
            (alter(MARKUP, "tool_calls", transform=None), "captures name, which only a transform can use"),
            (alter(MARKUP, "tool_calls", content="kv-lines"), "expected one of line_sep, kv_sep, strip, value"),
            (markup(tag_pattern=None), "tag_pattern: expected a regular expression as a text, got None"),
            (markup(tag_pattern=r"<(?P<key>\w+)>"), "expected a group 'key' and a group 'value', once each"),
            (markup(value_parser={"name": "yaml"}), "value_parser.name: expected one of text, json"),
            (markup(value_parser="json"), "value_parser: expected an object like"),
            (markup(attributes=1), "expected one of tag_pattern, value_parser, merge_duplicates, got 'attributes'"),
            (alter(PLAIN, "thinking", close=None), "fields.thinking never ends"),
            (alter(PLAIN, "thinking", content="json"), "expected text for reasoning and content, got content 'json'"),
            (alter(PLAIN, "thinking", open=None, open_pattern=r"<(?:a|b)\d>"), "expected a literal, or one of"),
            (alter(PLAIN, "thinking", open=None, open_pattern="(?=[a-z])", close="x"), "has no literal to open with"),
        ],
    )  # fmt: skip
    def test_a_malformed_template_is_refused_with_place_and_remedy(self, template: Any, says: str):
        with pytest.raises(ConfigError, match=f"(?s){says}"):
            from_response_template(template)

    @pytest.mark.parametrize(
        ("pattern", "why"),
        [
            (r"<call>(?:a+)+b", "could be part of it"),
            (r"<call>(a|a)*b", "can begin alike"),
            (r"<call>(?:a|ab)c", "can begin alike"),
            (r"<call>.*end", "needs the last 'end'"),
            (r"<call>\s*\s*x", "could end in several places"),
            (r"<call>(a)\1", r"the escape '\\1'"),
            (r"<call>(?!x)y", r"the construct '\(\?!x'"),
            (r"<call>(?<=x)y", "the construct"),
            (r"<call>(?i:x)", "the construct"),
            (r"<call>\bx", r"the escape '\\b'"),
            (r"<call>(?:)*", "can match the empty text"),
            (r"<call>(?:ab)*?c", "a lazy repeat of a group"),
            (r"<call>a++", "a possessive repeat"),
            (r"<call>a{2000}", "a repeat of more than 1000"),
            (r"(?=x)<call>", "a lookahead is supported only"),
            (r"[a-z]+<call>", "does not begin with a literal"),
            (r"<call>(", "it is not a valid regular expression"),
            ("<call>" + "x" * 5000, "at most 4096 are read"),
        ],
    )
    def test_a_pattern_that_could_need_backtracking_is_refused_by_name(self, pattern: str, why: str):
        template = alter(PLAIN, "tool_calls", open=None, open_pattern=pattern)
        with pytest.raises(ConfigError, match=f"(?s)fields.tool_calls.open_pattern: .*{why}"):
            from_response_template(template)

    def test_the_pattern_that_hangs_others_is_refused_at_once(self):
        nested = r"<(?P<key>\w+)>(?P<value>(?:[^<]+|x)*)</arg>"
        with pytest.raises(ConfigError, match=r"(?s)tag_pattern.*backtracking match could hang"):
            from_response_template(markup(tag_pattern=nested))


# Parts that are combined at random; most combinations are unambiguous, the others are refused.
PARTS = [r"\s*", r"\s+", "a", "b", "<x>", r"\w+", "[^>]+", "(?P<n>[a-z]+)", "(?:<x>)?", "(?:a|b)", r"\d*", ">", r"\n?"]


class TestPatterns:
    @settings(deadline=None, derandomize=True, max_examples=400)
    @given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=5), text=st.text("ab<x> \n1>", max_size=12))
    def test_an_accepted_pattern_matches_what_re_matches(self, parts: list[str], text: str):
        pattern = "".join(parts)
        if pattern.count("(?P<n>") > 1:
            return
        try:
            step = compile_pattern(read_pattern(pattern))
        except PatternError:
            return
        subject = Subject(text, final=True)
        wanted = re.compile(pattern, re.DOTALL).match(text)
        assert step(subject, 0) == (FAIL if wanted is None else wanted.end())
        if wanted is not None and "n" in wanted.groupdict():
            assert subject.capture("n") == wanted["n"]

    @settings(deadline=None, derandomize=True, max_examples=400)
    @given(
        parts=st.lists(st.sampled_from([*PARTS, ".*?<x>", r"\S+?<x>"]), max_size=5),
        text=st.text("ab<x> \n>", max_size=12),
    )
    def test_a_decision_on_a_part_of_a_text_stands(self, parts: list[str], text: str):
        try:
            step = compile_pattern(read_pattern("".join(parts)))
        except PatternError:
            return
        whole = step(Subject(text, final=True), 0)
        for end in range(len(text)):
            early = step(Subject(text[:end], final=False), 0)
            assert early in (WAIT, whole)

    def test_a_mark_without_end_is_given_up(self):
        text = "<|to|>tool.f" + " x" * 5000 + "<|text|>{}<|call|>"
        assert read(CHANNELS, text).calls == ()
