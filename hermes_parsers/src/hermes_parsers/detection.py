"""Detect a chat template's wire format by the marks in its text; the template is never run.

Every format is a row of marks: all of `needs` must be present (of a tuple, any one), and none of `lacks`. If exactly
one row fits, it is the answer. If none or several fit, there is no answer, and the closest formats are listed as
runners-up, each with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Mark = str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A mark that was found: its first place (`start` is an offset, `line` counts from 1) and how often it occurs."""

    mark: str
    start: int
    line: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """A format that was ruled out although some of its marks are present, and why."""

    name: str
    reason: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The result of detection; `name` is None if no format is certain.

    `name` is the name of the format; the registry knows whether a parser of that name is installed.
    """

    name: str | None
    evidence: tuple[Evidence, ...] = ()
    runners_up: tuple[RunnerUp, ...] = ()


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    needs: tuple[Mark, ...]
    lacks: tuple[Mark, ...] = ()


_NAME_KEY: Final = ('"name"', '\\"name\\"', "'name'", "\\'name\\'")
_ARGUMENTS_KEY: Final = ('"arguments"', '\\"arguments\\"', "'arguments'", "\\'arguments\\'")
_PARAMETERS_KEY: Final = ('"parameters": ', '\\"parameters\\": ')
_JSON_CALL: Final = ('{"name": "', '{\\"name\\": \\"', '{"name": function name', '{\\"name\\": function name')
_PYTHONIC: Final = ("[func_name1(", "tool_call.name + '('", 'tool_call.name + "("')
_LLAMA_3: Final = ("<|start_header_id|>", "<|python_tag|>")
_LLAMA_4: Final = ("<|header_start|>", "<|python_start|>")
_DEEPSEEK: Final = "<｜tool▁call▁begin｜>"
_DSML: Final = ("｜DSML｜", "dsml_token")
_CALLS_AFTER_A_SPACE: Final = ("｜ calls>", "' calls>", '" calls>')
_GRANITE: Final = "<|start_of_role|>"
_ARRAY_OF_GRANITE: Final = ("<|tool_call|>", "<tool_call>[")
_GLIMMER: Final = "Muse Glimmer"
_GCML: Final = "\uff5cGCML\uff5c"
_GIGACHAT_CALL: Final = ("'function call'", '"function call"', "function call<|role_sep|>", "<|function_call|>")
_SPACED_ACTION: Final = "<|action_start|> <|plugin|>"
_HUNYUAN: Final = ("<|extra_0|>", "<|extra_4|>", "<｜hy_")
_GLM: Final = ("<arg_key>", "<arg_value>", "<tool_call>")
_KEY_ON_A_LINE: Final = ("</arg_key>\\n", "</arg_key>\n")
_XML: Final = ("<function=", "<arg_key", "<invoke name=", "<parameter")
_ALL_AS_JSON: Final = "is string else args_value | tojson"
_VERBATIM: Final = "preserved exactly as-is"

# The first mark of a row is the most specific: a row without it is not even a runner-up.
_FORMATS: Final = (
    _Format(
        "hermes",
        ("<tool_call>", _NAME_KEY, _ARGUMENTS_KEY),
        (*_XML, "<tool_calls>", "<|tool_call|>", "[TOOL_CALLS]", "]<]", _GRANITE),
    ),
    # LongCat's later models put keys and values in tags instead of JSON.
    _Format("longcat", ("<longcat_tool_call>",), ("<longcat_arg_key",)),
    _Format("dots", ("<dots_function_call>",)),
    _Format("mistral", ("[TOOL_CALLS]",)),
    _Format(
        "llama3_json",
        (_JSON_CALL, _PARAMETERS_KEY, _LLAMA_3),
        ("<tool_call>", "functools", "<function", "<TOOLCALL>", "[func_name1(", *_LLAMA_4),
    ),
    _Format("llama4_json", (_LLAMA_4, _JSON_CALL, _PARAMETERS_KEY), ("[func_name1(",)),
    _Format("llama4_pythonic", (_PYTHONIC, _LLAMA_4)),
    _Format("pythonic", (_PYTHONIC,), (*_LLAMA_4, "<|tool_call_start|>", "<function_calls>", "<tool_call>")),
    _Format("olmo3", ("<function_calls>",), (*_DSML, "<invoke")),
    _Format("qwen3_coder", ("<function=", "<parameter=", "<tool_call>"), ("<seed:tool_call>", _VERBATIM, _ALL_AS_JSON)),
    _Format("qwen3_6", ("<function=", "<parameter=", "<tool_call>", _ALL_AS_JSON), ("<seed:tool_call>", _VERBATIM)),
    # MiMo's template says that values are taken as they are; Qwen's sets each between two newlines.
    _Format("mimo", ("<function=", "<parameter=", "<tool_call>", _VERBATIM)),
    _Format("seed_oss", ("<seed:tool_call>", "<function=", "<parameter=")),
    _Format("deepseek_v3", (_DEEPSEEK, "<｜tool▁sep｜>", "```json"), _DSML),
    _Format("deepseek_v31", (_DEEPSEEK, "<｜tool▁sep｜>"), ("```json", *_DSML)),
    _Format("deepseek_v32", (_DSML, "function_calls>"), ("tool_calls>",)),
    _Format("deepseek_v4", (_DSML, "tool_calls>"), ("function_calls>", _CALLS_AFTER_A_SPACE)),
    _Format("deepseek_v41", (_DSML, _CALLS_AFTER_A_SPACE)),
    _Format("kimi_k2", ("<|tool_call_argument_begin|>", "<|tool_call_begin|>")),
    _Format("kimi_k3", ("<|open|>", "<|sep|>", "<|close|>")),
    _Format("glm45", (*_GLM, _KEY_ON_A_LINE), ("<tool_sep", "<tool_calls")),
    _Format("glm47", _GLM, (*_KEY_ON_A_LINE, "<tool_sep", "<tool_calls")),
    _Format("minimax_m2", ("<minimax:tool_call>", "<invoke name=")),
    _Format("minimax_m3", ("]<]minimax[>[", "<invoke name=")),
    _Format("granite", (_GRANITE, _ARRAY_OF_GRANITE)),
    _Format("granite4", (_GRANITE, "<tool_call>", _NAME_KEY, _ARGUMENTS_KEY), _ARRAY_OF_GRANITE),
    _Format("granite-20b-fc", ("<function_call> ", "<function_response>")),
    _Format("internlm", ("<|action_start|>", "<|plugin|>"), (_SPACED_ACTION,)),
    _Format("interns1", (_SPACED_ACTION,)),
    # Both templates have the same text; only the models' special tokens around it differ.
    _Format("jamba", ("<tool_calls>", "<|bom|>", _NAME_KEY), ("<tool_sep", *_HUNYUAN)),
    _Format("hunyuan", ("<tool_calls>", _HUNYUAN, _NAME_KEY), ("<tool_sep", "<|bom|>")),
    _Format("hy_v3", ("<tool_sep", "<tool_calls", "<arg_key")),
    _Format("hy_v4", ("<tool_calls", "<arg_key", "<arg_value"), ("<tool_sep",)),
    _Format("phi4_mini_json", ("functools[",)),
    _Format("xlam", ('[{"name": "tool_call_name"',), ("<tool_call>",)),
    _Format("gpt-oss", ("<|channel|>commentary", "functions.")),
    # LFM2's first templates write no calls, but the list of tools has LFM2's special tokens too.
    _Format("lfm2", (("<|tool_call_start|>", "<|tool_list_start|>"),)),
    _Format("gemma4", ("<|tool_call>call:",)),
    _Format("functiongemma", ("<start_function_call>",)),
    # One format; only the template of Glimmer names it.
    _Format("muse", ("<atem:invoke name=",), (_GLIMMER,)),
    _Format("muse_glimmer", ("<atem:invoke name=", _GLIMMER)),
    _Format("step3", ("<steptml:invoke name=",)),
    _Format("minicpm5", ("<function name=", "<param name=")),
    # The later models' templates have the marks of both kinds of answers.
    _Format("cohere_command3", ("<|START_ACTION|>", "<|START_RESPONSE|>"), ("<|START_TEXT|>",)),
    _Format("cohere_command4", ("<|START_ACTION|>", "<|START_TEXT|>")),
    _Format("apertus", ("<|tools_prefix|>",)),
    _Format("gigachat3", (_GIGACHAT_CALL, "<|role_sep|>"), (_GCML,)),
    _Format("gigachat35", (_GCML,)),
    _Format("k2_horizon", ("<ifm|tool_call",)),
    _Format("inkling", ("<|content_invoke_tool_json|>",)),
    _Format("plamo3", ("plamo:begin_tool_request",)),
    _Format("solar_open2", ("<|tool_call:start|>", "<|tool_arg:start|>")),
)


def detect(template: str) -> Detection:
    """Detect the wire format of a chat template's text."""
    text = _without_comments(template)
    fitting: list[_Format] = []
    others: list[RunnerUp] = []
    for candidate in _FORMATS:
        reason = _objection(candidate, text)
        if reason is None:
            fitting.append(candidate)
        elif _first(candidate.needs[0], text) is not None:
            others.append(RunnerUp(name=candidate.name, reason=reason, evidence=_evidence(candidate, text)))
    if len(fitting) == 1:
        return Detection(name=fitting[0].name, evidence=_evidence(fitting[0], text), runners_up=tuple(others))
    return Detection(name=None, runners_up=(*(_tie(fits, fitting, text) for fits in fitting), *others))


def _tie(candidate: _Format, fitting: list[_Format], text: str) -> RunnerUp:
    rivals = ", ".join(other.name for other in fitting if other is not candidate)
    return RunnerUp(name=candidate.name, reason=f"{rivals} fits as well", evidence=_evidence(candidate, text))


def _objection(candidate: _Format, text: str) -> str | None:
    """Return why a format is ruled out: a mark is missing, or a mark of another format is present."""
    for mark in candidate.needs:
        if _first(mark, text) is None:
            return f"lacks the mark {_forms(mark)[0]}"
    for mark in candidate.lacks:
        found = _first(mark, text)
        if found is not None:
            return f"has the mark {found}"
    return None


def _first(mark: Mark, text: str) -> str | None:
    return next((form for form in _forms(mark) if form in text), None)


def _evidence(candidate: _Format, text: str) -> tuple[Evidence, ...]:
    found = [_occurrence(form, text) for mark in candidate.needs for form in _forms(mark) if form in text]
    return tuple(sorted(found, key=lambda evidence: evidence.start))


def _occurrence(mark: str, text: str) -> Evidence:
    start = text.index(mark)
    return Evidence(mark=mark, start=start, line=text.count("\n", 0, start) + 1, count=text.count(mark))


def _forms(mark: Mark) -> tuple[str, ...]:
    return (mark,) if isinstance(mark, str) else mark


def _without_comments(template: str) -> str:
    """Blank out Jinja comments, which may mention formats; offsets and line numbers stay valid."""
    kept: list[str] = []
    end = 0
    while (start := template.find("{#", end)) >= 0 and (close := template.find("#}", start + 2)) >= 0:
        comment = template[start : close + 2]
        kept += (template[end:start], "\n".join(" " * len(line) for line in comment.split("\n")))
        end = close + 2
    return "".join((*kept, template[end:]))
