"""The suite of hermes-testing on the formats of autumn 2026. `wire` is written from what defines each format."""

from __future__ import annotations

import json
from typing import ClassVar

from hermes_testing import ParserSuite

_PLAIN = {
    "typed_values": "elements hold plain text",
    "json_arguments": "only objects and lists are JSON",
    "repairs": "nothing but JSON is repaired",
    "any_names": "a name stands in a tag",
}
# The wide bars are the model's own special characters.
GCML = "\uff5cGCML\uff5c"


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class TestDotsWithTags(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "dots"
    block_marks = (("<dots_function_call>", "</dots_function_call>"),)
    lacks: ClassVar = _PLAIN

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            values = [f'<parameter name="{key}">{text_of(value)}</parameter>\n' for key, value in arguments.items()]
            blocks.append(f'<invoke name="{name}">\n{"".join(values)}</invoke>\n')
        text = f"{content}\n" if content else ""
        return f"{text}<dots_function_call>\n{''.join(blocks)}</dots_function_call>"


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


class TestApertus(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "apertus"
    reasoning_tags = ("<|inner_prefix|>", "<|inner_suffix|>")
    block_marks = (("<|tools_prefix|>", "<|tools_suffix|>"),)
    lacks: ClassVar = {"separate_calls": "the calls share one array"}

    def wire(self, calls, content=""):
        items = [json.dumps({name: arguments}) for name, arguments in calls]
        return f"{content}<|tools_prefix|>[{', '.join(items)}]<|tools_suffix|>"


class TestGigachat3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "gigachat3"
    lacks: ClassVar = {"end_mark": "a call ends where its JSON ends", "block_marks": "no mark ends a call"}
    opening = "<|message_sep|>\n\nfunction call<|role_sep|>\n"

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return content + "".join(f"{self.opening}{block}" for block in blocks)


class TestGigachat31(TestGigachat3):
    opening = "<|function_call|>"


class TestGigachat35(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "gigachat35"
    block_marks = ((f"<{GCML}tool_calls>", f"</{GCML}tool_calls>"),)
    lacks: ClassVar = {
        "json_arguments": "a parameter is text or JSON, as it says",
        "repairs": "nothing but JSON is repaired",
        "any_names": "a name stands in a tag",
        "end_mark": "the mark of the end is the only sign that no parameter follows",
    }

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            values = "".join(
                f'<{GCML}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
                f"{text_of(value)}</{GCML}parameter>\n"
                for key, value in arguments.items()
            )
            blocks.append(f'<{GCML}invoke name="{name}">\n{values}</{GCML}invoke>')
        text = f"{content}\n\n" if content else ""
        body = "\n".join(blocks)
        return f"{text}<{GCML}tool_calls>\n{body}\n</{GCML}tool_calls>"


class TestK2Horizon(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "k2_horizon"
    reasoning_tags = ("<ifm|think>", "</ifm|think>")
    block_marks = (("<ifm|tool_calls>", "</ifm|tool_calls>"), ("<ifm|tool_call>", "</ifm|tool_call>"))
    lacks: ClassVar = _PLAIN

    def wire(self, calls, content=""):
        blocks = [f"<ifm|tool_call>{self.body(name, arguments)}</ifm|tool_call>\n" for name, arguments in calls]
        return f"{content}<ifm|tool_calls>\n{''.join(blocks)}</ifm|tool_calls>"

    def body(self, name, arguments):
        pairs = [
            f"<ifm|arg_key>{key}</ifm|arg_key>\n{self.type_tag(value)}<ifm|arg_value>{text_of(value)}</ifm|arg_value>\n"
            for key, value in arguments.items()
        ]
        return f"{name}\n{''.join(pairs)}"

    def type_tag(self, _):
        return ""


class TestK2HorizonWithTypes(TestK2Horizon):
    lacks: ClassVar = {
        **{key: value for key, value in _PLAIN.items() if key != "typed_values"},
        "render": "what is written is the template's default form, whose types only a schema knows",
    }
    kinds: ClassVar = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

    def type_tag(self, value):
        return f"<ifm|arg_type>{self.kinds.get(type(value), 'null')}</ifm|arg_type>\n"


class TestK2HorizonWithJson(TestK2Horizon):
    lacks: ClassVar = {"render": "what is written is the template's default form, whose types only a schema knows"}

    def body(self, name, arguments):
        return json.dumps({"name": name, "arguments": arguments})


class TestInkling(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "inkling"
    reasoning_tags = ("<|content_thinking|>", "<|end_message|>")
    block_marks = (("now<|content_invoke_tool_json|>", "<|end_message|>"),)
    lacks: ClassVar = {"reasoning": "a call is a message of its own, so that none stands in another"}

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
    lacks: ClassVar = {**_PLAIN, "end_mark": "the mark of the end is the only sign that no parameter follows"}

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            lines = [
                f"<|tool_arg:start|>{key}<|tool_arg:value|>{text_of(value)}<|tool_arg:end|>\n"
                for key, value in arguments.items()
            ]
            blocks.append(f"<|tool_call:start|>{name}\n{''.join(lines)}<|tool_call:end|>")
        return content + "\n".join(blocks)
