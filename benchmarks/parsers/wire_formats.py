"""How each family's models write tool calls: the wire formats the comparison's messages are built from.

A `Wire` writes calls the way the family's chat template does. `tail` is the last mark of a message of calls, `closer`
the mark that ends a call (to be hidden in a string), `opener` the one that begins one (to be mentioned in prose), `bad`
a call that no parser can read: closed, but with invalid JSON, or without a name if the format has no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.parsers.peer_names import BAR

Arguments = Mapping[str, Any] | str
"""The arguments of a call, or their text as the model shall have written it."""
Call = tuple[str, Arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One family's format; `call` writes one call from its position, name and arguments."""

    family: str
    parser: str
    kind: Literal["json", "xml", "python"]
    call: Callable[[int, str, Arguments], str]
    opener: str
    bad: str
    begin: str = ""
    between: str = ""
    end: str = ""
    tail: str = ""
    closer: str = ""
    lead: str = "\n"
    follow: str = "\n"
    prose: str = "To call a tool I would write {opener} first, but no call is needed here."
    text_before: str = "{text}"
    text_after: str = "{text}"
    reasoning: str = ""
    alone: bool = False
    """Whether the models' messages are nothing but calls; they are streamed without text before."""

    def calls(self, calls: Sequence[Call | None]) -> str:
        """Write several calls; None stands for the bad one."""
        texts = [self.bad if call is None else self.call(number, *call) for number, call in enumerate(calls)]
        return self.begin + self.between.join(texts) + self.end

    def before(self, text: str) -> str:
        """Write text that comes before calls."""
        return self.text_before.format(text=text) + self.lead

    def after(self, text: str) -> str:
        """Write text that comes after calls."""
        return self.follow + self.text_after.format(text=text)


def _json(arguments: Arguments) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _object(key: str) -> Callable[[int, str, Arguments], str]:
    """Return a writer of `{"name": …, KEY: …}`."""
    return lambda _number, name, arguments: f'{{"name": "{name}", "{key}": {_json(arguments)}}}'


def _around(
    before: str, inner: Callable[[int, str, Arguments], str], after: str
) -> Callable[[int, str, Arguments], str]:
    return lambda number, name, arguments: before + inner(number, name, arguments) + after


def _raw(pattern: str) -> Callable[[int, str, Arguments], str]:
    """Return a writer that fills NUMBER, NAME and ARGUMENTS into a pattern."""

    def write(number: int, name: str, arguments: Arguments) -> str:
        filled = pattern.replace("NUMBER", str(number)).replace("NAME", name)
        return filled.replace("ARGUMENTS", _json(arguments))

    return write


def _tags(pattern: str, parameter: str) -> Callable[[int, str, Arguments], str]:
    """Return a writer for formats that have a tag per parameter; numbers and lists are written as JSON."""

    def write(_number: int, name: str, arguments: Arguments) -> str:
        assert not isinstance(arguments, str), "tags have no arguments' text"
        texts = [
            parameter.replace("KEY", key)
            .replace("ISTEXT", "true" if isinstance(value, str) else "false")
            .replace("VALUE", value if isinstance(value, str) else json.dumps(value))
            for key, value in arguments.items()
        ]
        return pattern.replace("NAME", name).replace("PARAMETERS", "".join(texts))

    return write


def _pythonic(_number: int, name: str, arguments: Arguments) -> str:
    """Write a Python call; a JSON string is a Python string literal too."""
    assert not isinstance(arguments, str), "a Python call has no arguments' text"
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in arguments.items())})"


def _gemma(_number: int, name: str, arguments: Arguments) -> str:
    assert not isinstance(arguments, str), "Gemma's format has no arguments' text"
    return f"<|tool_call>call:{name}{_gemma_value(arguments)}<tool_call|>"


def _gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, list):
        return f"[{','.join(map(_gemma_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_gemma_value(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


_BAD: Final = '{"path": a.txt, "text": "x"}'
_BAD_OBJECT: Final = f'{{"name": "write_file", "arguments": {_BAD}}}'
_BAD_LLAMA: Final = f'{{"name": "write_file", "parameters": {_BAD}}}'
_THINK: Final = "<think>\nI could write\n{calls}\nbut that is not final.\n</think>\n\n"
_INTERN_TAIL: Final = "<|action_end|>"
_DSML: Final = f"{BAR}DSML{BAR}"
_HARMONY: Final = (
    "<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>"
)


def _deepseek(head: str, foot: str) -> str:
    return f"<{BAR}tool▁call▁begin{BAR}>{head}ARGUMENTS{foot}<{BAR}tool▁call▁end{BAR}>"


def _array(family: str, parser: str, begin: str, end: str, *, alone: bool = False, **rest: str) -> Wire:
    return Wire(
        family=family, parser=parser, kind="json", call=_object("arguments"), bad=_BAD_OBJECT,
        begin=begin, between=", ", end=end, tail=end.removeprefix("]") or end, alone=alone,
        **{"opener": begin.rstrip("["), "closer": end, **rest},
    )  # fmt: skip


def _hermes(family: str) -> Wire:
    return Wire(
        family=family, parser=family, kind="json", opener="<tool_call>", closer="</tool_call>", between="\n",
        call=_around("<tool_call>\n", _object("arguments"), "\n</tool_call>"), tail="\n</tool_call>",
        bad=f"<tool_call>\n{_BAD_OBJECT}\n</tool_call>", reasoning=_THINK,
    )  # fmt: skip


def _intern(family: str, opener: str) -> Wire:
    return Wire(
        family=family, parser=family, kind="json", opener=opener, closer=_INTERN_TAIL, tail=_INTERN_TAIL,
        call=_around(f"{opener}\n", _object("parameters"), _INTERN_TAIL), between="\n",
        bad=f"{opener}\n{_BAD_LLAMA}{_INTERN_TAIL}",
    )  # fmt: skip


_V3: Final = _deepseek(f"function<{BAR}tool▁sep{BAR}>NAME\n```json\n", "\n```")
_V31: Final = _deepseek(f"NAME<{BAR}tool▁sep{BAR}>", "")
_KIMI: Final = "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>"
_SECTION: Final[dict[str, Any]] = {
    "begin": f"<{BAR}tool▁calls▁begin{BAR}>",
    "end": f"<{BAR}tool▁calls▁end{BAR}>",
    "opener": f"<{BAR}tool▁calls▁begin{BAR}>",
    "tail": f"<{BAR}tool▁calls▁end{BAR}>",
}


def _bad_raw(pattern: str) -> str:
    return _raw(pattern)(1, "write_file", _BAD)


WIRES: Final[tuple[Wire, ...]] = (
    _hermes("hermes"),
    _hermes("qwen25"),
    _array("mistral", "mistral", "[TOOL_CALLS] [", "]", opener="[TOOL_CALLS]", closer='"}}]'),
    Wire(
        family="mistral_args", parser="mistral", kind="json", call=_raw("[TOOL_CALLS]NAME[ARGS]ARGUMENTS"),
        opener="[TOOL_CALLS]", closer="[TOOL_CALLS]", bad=_bad_raw("[TOOL_CALLS]NAME[ARGS]ARGUMENTS"),
        reasoning="[THINK]I could write\n{calls}\nbut that is not final.[/THINK]",
    ),
    Wire(
        family="llama3_json", parser="llama3_json", kind="json", call=_object("parameters"), begin="<|python_tag|>",
        between="; ", opener="<|python_tag|>", closer='"; {', bad=_BAD_LLAMA, alone=True,
    ),
    Wire(
        family="pythonic", parser="pythonic", kind="python", call=_pythonic, begin="[", between=", ", end="]", tail="]",
        opener="[", closer=")]", alone=True, bad='write_file(path=, text="x")',
        prose="See [1] and the list [a, b]: no call is needed here.",
    ),
    Wire(
        family="qwen3_coder", parser="qwen3_coder", kind="xml", between="\n", opener="<tool_call>",
        closer="</tool_call>",
        call=_tags(
            "<tool_call>\n<function=NAME>\nPARAMETERS</function>\n</tool_call>",
            "<parameter=KEY>\nVALUE\n</parameter>\n",
        ),
        bad="<tool_call>\n<function=>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
        tail="\n</tool_call>", reasoning=_THINK,
    ),
    Wire(
        family="deepseek_v3", parser="deepseek_v3", kind="json", call=_raw(_V3), between="\n", bad=_bad_raw(_V3),
        closer=f"<{BAR}tool▁call▁end{BAR}>", lead="", follow="", reasoning=_THINK, **_SECTION,
    ),
    Wire(
        family="deepseek_v31", parser="deepseek_v31", kind="json", call=_raw(_V31), bad=_bad_raw(_V31),
        closer=f"<{BAR}tool▁call▁end{BAR}>", lead="", follow="", reasoning=_THINK, **_SECTION,
    ),
    Wire(
        family="deepseek_v32", parser="deepseek_v32", kind="xml", lead="\n\n", between="\n", reasoning=_THINK,
        begin=f"<{_DSML}function_calls>\n", end=f"\n</{_DSML}function_calls>", tail=f"\n</{_DSML}function_calls>",
        opener=f"<{_DSML}function_calls>", closer=f"</{_DSML}function_calls>",
        call=_tags(
            f'<{_DSML}invoke name="NAME">\nPARAMETERS</{_DSML}invoke>',
            f'<{_DSML}parameter name="KEY" string="ISTEXT">VALUE</{_DSML}parameter>\n',
        ),
        bad=f'<{_DSML}invoke>\n<{_DSML}parameter name="path" string="true">a.txt</{_DSML}parameter>\n</{_DSML}invoke>',
    ),
    Wire(
        family="kimi_k2", parser="kimi_k2", kind="json", call=_raw(_KIMI), bad=_bad_raw(_KIMI), lead="", follow="",
        begin="<|tool_calls_section_begin|>", end="<|tool_calls_section_end|>", closer="<|tool_call_end|>",
        tail="<|tool_calls_section_end|>", opener="<|tool_calls_section_begin|>", reasoning=_THINK,
    ),
    Wire(
        family="glm45", parser="glm45", kind="xml", between="\n", opener="<tool_call>", closer="</tool_call>",
        call=_tags(
            "<tool_call>NAME\nPARAMETERS</tool_call>", "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"
        ),
        bad="<tool_call>\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
        tail="\n</tool_call>", reasoning=_THINK,
    ),
    Wire(
        family="minimax_m2", parser="minimax_m2", kind="xml", begin="<minimax:tool_call>\n", between="\n",
        end="\n</minimax:tool_call>", tail="\n</minimax:tool_call>", opener="<minimax:tool_call>",
        closer="</minimax:tool_call>", reasoning=_THINK,
        call=_tags('<invoke name="NAME">\nPARAMETERS</invoke>', '<parameter name="KEY">VALUE</parameter>\n'),
        bad='<invoke>\n<parameter name="path">a.txt</parameter>\n</invoke>',
    ),
    _array("granite", "granite", "<|tool_call|>[", "]", closer='"}}]'),
    _intern("internlm", "<|action_start|><|plugin|>"),
    _intern("interns1", "<|action_start|> <|plugin|>"),
    _array("jamba", "jamba", "<tool_calls>[", "]</tool_calls>"),
    _array("phi4_mini_json", "phi4_mini_json", "functools[", "]"),
    _array("xlam", "xlam", "[", "]", alone=True, prose="See [1] and the list [2, 3]: no call is needed here."),
    Wire(
        family="gpt-oss", parser="gpt-oss", kind="json", call=_raw(_HARMONY), bad=_bad_raw(_HARMONY),
        opener="to=functions.write_file", closer="<|call|>", tail="<|call|>", lead="", follow="",
        text_before="<|channel|>commentary<|message|>{text}<|end|>",
        text_after="<|start|>assistant<|channel|>final<|message|>{text}<|return|>",
    ),
    Wire(
        family="lfm2", parser="lfm2", kind="python", call=_pythonic, between=", ", begin="<|tool_call_start|>[",
        end="]<|tool_call_end|>", tail="<|tool_call_end|>", opener="<|tool_call_start|>", closer="]<|tool_call_end|>",
        lead="", bad='write_file(path=, text="x")',
    ),
    _array("hunyuan", "hunyuan", "<tool_calls>[", "]</tool_calls>", reasoning=_THINK + "<answer>\n"),
    Wire(
        family="gemma4", parser="gemma4", kind="xml", call=_gemma, opener="<|tool_call>", closer="<tool_call|>",
        tail="<tool_call|>", lead="", bad='<|tool_call>call:{path:<|"|>a.txt<|"|>}<tool_call|>',
        reasoning="<|channel>thought\nI could write\n{calls}\nbut that is not final.\n<channel|>",
    ),
)  # fmt: skip
