"""The suite of hermes-testing on every format that writes a call's name outside the JSON of its arguments."""

from __future__ import annotations

import json
from types import MappingProxyType

from hermes_testing import ParserSuite


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
            "end_mark": "the list's bracket is no mark",
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
    lacks = MappingProxyType({"reasoning": "a call is a message of its own, so that none stands in another"})

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
