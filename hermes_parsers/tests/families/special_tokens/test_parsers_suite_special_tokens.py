"""The suite of hermes-testing on the formats in which special tokens mark the parts of a turn or of a call."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import ClassVar

from hermes_testing import ParserSuite


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class TestMistral(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "mistral"
    reasoning_tags = ("[THINK]", "[/THINK]")
    lacks = MappingProxyType({"end_mark": "a call ends where its JSON ends", "block_marks": "no mark ends a call"})
    between = "[ARGS]"

    def wire(self, calls, content=""):
        return content + "".join(
            f"[TOOL_CALLS]{name}{self.between}{json.dumps(arguments)}" for name, arguments in calls
        )


class TestMistralWithoutArgs(TestMistral):
    between = ""


class TestMistralWithCallIds(TestMistral):
    between = "[CALL_ID]abcdefghi[ARGS]"


class TestMistralArray(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "mistral"
    reasoning_tags = ("[THINK]", "[/THINK]")
    lacks = MappingProxyType(
        {
            "separate_calls": "the calls are items of one list",
            "end_mark": "the list's bracket is not a mark",
            "block_marks": "no mark ends the list",
        }
    )
    opening = "[TOOL_CALLS]["

    def wire(self, calls, content=""):
        items = [
            {"name": name, "arguments": arguments, "id": f"call{n:05d}"} for n, (name, arguments) in enumerate(calls)
        ]
        return f"{content}{self.opening}{', '.join(map(json.dumps, items))}]"


class TestMistralArrayBehindSpace(TestMistralArray):
    opening = "[TOOL_CALLS] ["


class TestDeepseekV31(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "deepseek_v31"
    between = ""
    block_marks = (("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"), ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"))

    def wire(self, calls, content=""):
        blocks = [self.block(name, json.dumps(arguments)) for name, arguments in calls]
        return f"{content}<｜tool▁calls▁begin｜>{self.between.join(blocks)}<｜tool▁calls▁end｜>"

    def block(self, name, arguments):
        return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"


class TestDeepseekV3(TestDeepseekV31):
    component = "deepseek_v3"
    between = "\n"

    def block(self, name, arguments):
        body = f"function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```"
        return f"<｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜>"


class TestDeepseekV31ReadingV3(TestDeepseekV3):
    component = "deepseek_v31"


class TestDeepseekV3ReadingV31(TestDeepseekV31):
    component = "deepseek_v3"


class TestKimi(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "kimi_k2"
    section = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    block_marks = (
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_begin|>", "<|tool_call_end|>"),
    )

    def wire(self, calls, content=""):
        blocks = [
            f"<|tool_call_begin|>functions.{name}:{place}<|tool_call_argument_begin|>{json.dumps(arguments)}"
            for place, (name, arguments) in enumerate(calls)
        ]
        return f"{content}{self.section[0]}{''.join(f'{block}<|tool_call_end|>' for block in blocks)}{self.section[1]}"


class TestKimiWithoutSections(TestKimi):
    section = "", ""


class TestHarmony(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "gpt-oss"
    reasoning_tags = "<|channel|>analysis<|message|>", "<|end|>"
    block_marks = (("<|channel|>commentary to=functions.now <|constrain|>json<|message|>", "<|call|>"),)
    lacks = MappingProxyType({"reasoning": "a call is a separate message, so none is inside another"})

    def wire(self, calls, content=""):
        preamble = [f"<|channel|>commentary<|message|>{content}<|end|>"] if content else []
        blocks = [self.block(name, json.dumps(arguments)) for name, arguments in calls]
        return "<|start|>assistant".join([*preamble, *blocks])

    def answer(self, content):
        return f"<|channel|>final<|message|>{content}<|end|>"

    def block(self, name, arguments):
        return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


class TestHarmonyAsItsTemplateWrites(TestHarmony):
    block_marks = (("<|start|>assistant to=functions.now<|channel|>commentary json<|message|>", "<|call|>"),)

    def wire(self, calls, content=""):
        return f"<|start|>assistant{super().wire(calls, content)}"

    def block(self, name, arguments):
        return f" to=functions.{name}<|channel|>commentary json<|message|>{arguments}<|call|>"


class TestCohereCommand3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "cohere_command3"
    reasoning_tags = ("<|START_THINKING|>", "<|END_THINKING|>")
    block_marks = (("<|START_ACTION|>", "<|END_ACTION|>"),)
    lacks: ClassVar = {"separate_calls": "the calls share one array"}
    marks = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")

    def wire(self, calls, content=""):
        items = [
            f'{{"tool_call_id": "{index}", "tool_name": {json.dumps(name)}, "parameters": {json.dumps(arguments)}}}'
            for index, (name, arguments) in enumerate(calls)
        ]
        text = self.answer(content) if content else ""
        listed = ",\n    ".join(items)
        return f"{text}<|START_ACTION|>[\n    {listed}\n]<|END_ACTION|>"

    def answer(self, content):
        return f"{self.marks[0]}{content}{self.marks[1]}"


class TestCohereCommand4(TestCohereCommand3):
    component = "cohere_command4"
    marks = ("<|START_TEXT|>", "<|END_TEXT|>")


class TestInkling(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "inkling"
    reasoning_tags = ("<|content_thinking|>", "<|end_message|>")
    block_marks = (("now<|content_invoke_tool_json|>", "<|end_message|>"),)
    lacks: ClassVar = {"reasoning": "a call is a separate message, so none is inside another"}

    def wire(self, calls, content=""):
        blocks = [self.answer(content)] if content else []
        for name, arguments in calls:
            body = json.dumps({"name": name, "args": arguments}, separators=(",", ":"))
            blocks.append(f"{name}<|content_invoke_tool_json|>{body}<|end_message|>")
        return "<|message_model|>".join(blocks)

    def answer(self, content):
        return f"<|content_text|>{content}<|end_message|>"

    def mark(self):
        return "<|content_invoke_tool_json|>"


class TestPlamo3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "plamo3"
    reasoning_tags = ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")
    section = ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>")
    constraint = "<|plamo:constrain|>json"
    block_marks = (
        ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        ("<|plamo:begin_tool_request:plamo|>", "<|plamo:end_tool_request:plamo|>"),
    )

    def wire(self, calls, content=""):
        blocks = [
            "<|plamo:begin_tool_request:plamo|>"
            f"<|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
            f"<|plamo:begin_tool_arguments:plamo|>{self.constraint}<|plamo:msg|>{json.dumps(arguments)}"
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
            for name, arguments in calls
        ]
        return f"{content}{self.section[0]}{''.join(blocks)}{self.section[1]}"


class TestPlamo3WithoutSections(TestPlamo3):
    section, constraint = ("", ""), ""


class TestSolarOpen2(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "solar_open2"
    reasoning_tags = ("<|think:start|>", "<|think:end|>")
    block_marks = (("<|tool_call:start|>", "<|tool_call:end|>"),)
    lacks: ClassVar = {
        "typed_values": "elements hold plain text",
        "json_arguments": "only objects and lists are JSON",
        "repairs": "nothing but JSON is repaired",
        "any_names": "a name stands in a tag",
        "end_mark": "the mark of the end is the only sign that no parameter follows",
    }

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            lines = [
                f"<|tool_arg:start|>{key}<|tool_arg:value|>{text_of(value)}<|tool_arg:end|>\n"
                for key, value in arguments.items()
            ]
            blocks.append(f"<|tool_call:start|>{name}\n{''.join(lines)}<|tool_call:end|>")
        return content + "\n".join(blocks)
