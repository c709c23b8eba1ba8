"""The suite of hermes-testing on every format with JSON objects between marks."""

from __future__ import annotations

import json
from typing import ClassVar

from hermes_testing import ParserSuite


class TestHermes(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "hermes"
    tag = "tool_call"
    block_marks = (("<tool_call>", "</tool_call>"),)

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        tagged = [f"<{self.tag}>\n{block}\n</{self.tag}>" for block in blocks]
        return "\n".join([content, *tagged] if content else tagged)


class TestLongcat(TestHermes):
    component, tag = "longcat", "longcat_tool_call"
    reasoning_tags = ("<longcat_think>", "</longcat_think>")
    block_marks = (("<longcat_tool_call>", "</longcat_tool_call>"),)


class TestDots(TestHermes):
    component, tag = "dots", "dots_function_call"
    block_marks = (("<dots_function_call>", "</dots_function_call>"),)
    lacks: ClassVar = {"render": "it is written with tags, whose values only a schema types"}


class TestJamba(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "jamba"
    around = ("<tool_calls>[\n", "\n]</tool_calls>")
    block_marks = (("<tool_calls>", "</tool_calls>"),)
    lacks: ClassVar = {"separate_calls": "the calls share one array"}
    arguments_key = "arguments"

    def wire(self, calls, content=""):
        items = [json.dumps({"name": name, self.arguments_key: arguments}) for name, arguments in calls]
        return content + self.around[0] + ", ".join(items) + self.around[1]


class TestHunyuan(TestJamba):
    component = "hunyuan"
    around = ("<tool_calls>[", "]</tool_calls>")


class TestGranite(TestJamba):
    component = "granite"
    around = ("<|tool_call|>[", "]")
    lacks: ClassVar = {**TestJamba.lacks, "block_marks": "no mark ends the array"}


class TestGraniteOfLaterReleases(TestJamba):
    component = "granite"
    around = ("<tool_call>[", "]")
    lacks: ClassVar = {**TestJamba.lacks, "block_marks": "no mark ends the array"}


class TestPhi(TestJamba):
    component = "phi4_mini_json"
    around = ("functools[", "]")
    lacks: ClassVar = {**TestJamba.lacks, "block_marks": "no mark ends the array"}


class TestXlam(TestJamba):
    component = "xlam"
    around = ("[", "]")
    lacks: ClassVar = {**TestJamba.lacks, "block_marks": "the array stands bare"}


class TestXlamInAFence(TestJamba):
    component = "xlam"
    around = ("```json\n[", "]\n```")
    lacks: ClassVar = {**TestJamba.lacks, "block_marks": "a fence is for any JSON"}


class TestInternlm(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "internlm"
    opener = "<|action_start|><|plugin|>\n"
    block_marks = (("<|action_start|><|plugin|>", "<|action_end|>"),)

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls]
        return content + "\n".join(f"{self.opener}{block}<|action_end|>" for block in blocks)


class TestInternS1(TestInternlm):
    component, opener = "interns1", "<|action_start|> <|plugin|>\n"
    block_marks = (("<|action_start|> <|plugin|>", "<|action_end|>"),)


class TestGraniteFunctionCalling(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "granite-20b-fc"

    lacks: ClassVar = {"end_mark": "the format has none", "block_marks": "no mark ends a call"}

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return content + "\n".join(f"<function_call> {block}" for block in blocks)


class TestLlama(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "llama3_json"
    lacks: ClassVar = {"end_mark": "the format has none", "block_marks": "no mark ends a call"}

    def wire(self, calls, content=""):
        return content + "; ".join(json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls)


class TestLlamaWithItsTag(TestLlama):
    component = "llama4_json"

    def wire(self, calls, content=""):
        return content + "<|python_tag|>" + super().wire(calls)


class TestApertus(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "apertus"
    reasoning_tags = ("<|inner_prefix|>", "<|inner_suffix|>")
    block_marks = (("<|tools_prefix|>", "<|tools_suffix|>"),)
    lacks: ClassVar = {"separate_calls": "the calls share one array"}

    def wire(self, calls, content=""):
        items = [json.dumps({name: arguments}) for name, arguments in calls]
        return f"{content}<|tools_prefix|>[{', '.join(items)}]<|tools_suffix|>"
