"""The suite of hermes-testing on the formats with tagged parameters. `wire` is written from the models' templates."""

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
_NO_LAST_MARK = {**_PLAIN, "end_mark": "the mark of the end is the only sign that no parameter follows"}
# The wide bars are the model's own special characters.
GCML = "\uff5cGCML\uff5c"


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def wide(text):
    """Write a text's bars as the models' wide ones, which look too much like the narrow ones to be typed here."""
    return text.replace("|", "\uff5c")


class TestQwen3Coder(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "qwen3_coder"
    lacks: ClassVar = _PLAIN
    before, around, line = "\n\n", ("<tool_call>", "</tool_call>"), "\n"
    block_marks = (around,)

    def wire(self, calls, content=""):
        line, (opening, closing) = self.line, self.around
        blocks = []
        for name, arguments in calls:
            values = "".join(f"<parameter={k}>{line}{text_of(v)}{line}</parameter>\n" for k, v in arguments.items())
            blocks.append(f"{opening}\n<function={name}>\n{values}</function>\n{closing}")
        return (content + self.before if content else "") + "\n".join(blocks)


class TestQwen3Xml(TestQwen3Coder):
    component = "qwen3_xml"


class TestStep5(TestQwen3Coder):
    component, before = "step5", ""


class TestSeedOss(TestQwen3Coder):
    component, line = "seed_oss", ""
    around = ("<seed:tool_call>", "</seed:tool_call>")
    reasoning_tags = ("<seed:think>", "</seed:think>")
    block_marks = (around,)


class TestMimo(TestQwen3Coder):
    component, line = "mimo", ""


class TestGlm45(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "glm45"
    block_marks = (("<tool_call>", "</tool_call>"),)
    lacks: ClassVar = _NO_LAST_MARK
    before, line = "\n", "\n"

    def wire(self, calls, content=""):
        blocks = [f"<tool_call>{name}{self.line}{self.pairs(arguments)}</tool_call>" for name, arguments in calls]
        return (content + self.before if content else "") + self.line.join(blocks)

    def pairs(self, arguments):
        line = self.line
        return "".join(
            f"<arg_key>{key}</arg_key>{line}<arg_value>{text_of(value)}</arg_value>{line}"
            for key, value in arguments.items()
        )


class TestGlm47(TestGlm45):
    component, before, line = "glm47", "", ""


class TestHunyuanV3(TestGlm47):
    component, separator = "hy_v3", "<tool_sep>"
    block_marks = (("<tool_calls>", "</tool_calls>"), ("<tool_call>", "</tool_call>"))
    lacks: ClassVar = _PLAIN

    def wire(self, calls, content=""):
        blocks = [f"<tool_call>{name}{self.separator}{self.pairs(arguments)}</tool_call>" for name, arguments in calls]
        return f"{content}<tool_calls>{''.join(blocks)}</tool_calls>"


class TestHunyuanV4(TestHunyuanV3):
    component, separator = "hy_v4", ""


class TestMinimaxM2(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "minimax_m2"
    lacks: ClassVar = _PLAIN
    before, around, tag = "\n", ("<minimax:tool_call>", "</minimax:tool_call>"), ""
    block_marks = (around,)

    def wire(self, calls, content=""):
        tag, (opening, closing) = self.tag, self.around
        invokes = []
        for name, arguments in calls:
            values = "".join(
                f'<{tag}parameter name="{key}">{text_of(value)}</{tag}parameter>\n' for key, value in arguments.items()
            )
            invokes.append(f'<{tag}invoke name="{name}">\n{values}</{tag}invoke>\n')
        return (content + self.before if content else "") + f"{opening}\n{''.join(invokes)}{closing}"


class TestMuse(TestMinimaxM2):
    component, before, tag = "muse", "", "atem:"
    around = ("<atem:function_calls>", "</atem:function_calls>")
    reasoning_tags = ("to=self<|message|>", "<|eom|>")
    block_marks = (around,)


class TestMinicpm5(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "minicpm5"
    block_marks = (('<function name="now">', "</function>"),)
    lacks: ClassVar = _NO_LAST_MARK

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            values = "".join(f'<param name="{key}">{text_of(value)}</param>' for key, value in arguments.items())
            blocks.append(f'<function name="{name}">{values}</function>')
        return content + "\n".join(blocks)


class TestMinimaxM3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "minimax_m3"
    block_marks = (("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"),)
    lacks: ClassVar = {
        **_PLAIN,
        "nested_values": "what is nested has the type that its own schema declares",
        "own_marks": "what the special token makes a tag is one wherever it stands",
    }
    reasoning_tags = ("<mm:think>", "</mm:think>")
    token = "]<]minimax[>["

    def wire(self, calls, content=""):
        token = self.token
        invokes = [
            f'{token}<invoke name="{name}">{self.elements(arguments) if arguments else ""}{token}</invoke>\n'
            for name, arguments in calls
        ]
        return f"{content}{token}<tool_call>\n{''.join(invokes)}{token}</tool_call>"

    def elements(self, value):
        if isinstance(value, dict) and value:
            return "".join(f"{self.token}<{k}>{self.elements(v)}{self.token}</{k}>" for k, v in value.items())
        if isinstance(value, list) and value:
            return "".join(f"{self.token}<item>{self.elements(v)}{self.token}</item>" for v in value)
        return text_of(value)


class TestDeepseekV32(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "deepseek_v32"
    block_marks = ((wide("<|DSML|function_calls>"), wide("</|DSML|function_calls>")),)
    lacks: ClassVar = {
        "json_arguments": "strings stand as they are",
        "repairs": "nothing but JSON is repaired",
        "any_names": "a name stands in a tag",
    }
    block, space = "function_calls", ""

    def wire(self, calls, content=""):
        mark = wide("|DSML|") + self.space
        invokes = []
        for name, arguments in calls:
            values = "\n".join(
                f'<{mark}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
                f"{text_of(value)}</{mark}parameter>"
                for key, value in arguments.items()
            )
            invokes.append(f'<{mark}invoke name="{name}">\n{values}\n</{mark}invoke>')
        return f"{content}\n\n<{mark}{self.block}>\n" + "\n".join(invokes) + f"\n</{mark}{self.block}>"


class TestDeepseekV4(TestDeepseekV32):
    component, block = "deepseek_v4", "tool_calls"
    block_marks = ((wide("<|DSML|tool_calls>"), wide("</|DSML|tool_calls>")),)


class TestDeepseekV41(TestDeepseekV32):
    component, block, space = "deepseek_v41", "calls", " "
    block_marks = ((wide("<|DSML| calls>"), wide("</|DSML| calls>")),)


class TestStep3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "step3"
    block_marks = ((wide("<|tool_calls_begin|>"), wide("<|tool_calls_end|>")),)
    lacks: ClassVar = _PLAIN

    def wire(self, calls, content=""):
        blocks = []
        for name, arguments in calls:
            values = "".join(
                f'<steptml:parameter name="{key}">{text_of(value)}</steptml:parameter>'
                for key, value in arguments.items()
            )
            invoke = f'<steptml:invoke name="{name}">{values}</steptml:invoke>'
            blocks.append(f"{wide('<|tool_call_begin|>function<|tool_sep|>')}{invoke}{wide('<|tool_call_end|>')}")
        return f"{content}{wide('<|tool_calls_begin|>')}{''.join(blocks)}{wide('<|tool_calls_end|>')}"


class TestKimiK3(ParserSuite):
    plugin, component = "hermes_parsers.plugin", "kimi_k3"
    block_marks = (("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),)
    lacks: ClassVar = {
        "json_arguments": "strings stand as they are",
        "repairs": "nothing but JSON is repaired",
        "any_names": "a name stands in a tag",
    }
    reasoning_tags = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
    types: ClassVar = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}

    def wire(self, calls, content=""):
        blocks = []
        for index, (name, arguments) in enumerate(calls, 1):
            values = "".join(
                f'<|open|>argument key="{key}" type="{self.types.get(type(value), "null")}"<|sep|>'
                f"{text_of(value)}<|close|>argument<|sep|>"
                for key, value in arguments.items()
            )
            blocks.append(f'<|open|>call tool="{name}" index="{index}"<|sep|>{values}<|close|>call<|sep|>')
        return f"{content}<|open|>tools<|sep|>{''.join(blocks)}<|close|>tools<|sep|>"


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
