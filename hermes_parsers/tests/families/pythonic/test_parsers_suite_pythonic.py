"""The parser suite on the formats that write calls as Python. `wire` is written from the templates."""

from __future__ import annotations

import json
from types import MappingProxyType

from hermes_testing import ParserSuite

_PYTHON = {
    "separate_calls": "the calls are items of one list",
    "repairs": "what lenient mode repairs in JSON is right in Python",
    "any_names": "keywords are identifiers",
}
_BARE = "the list stands bare"
_SINGLE_QUOTED = {**_PYTHON, "json_arguments": "the strings are Python's"}
_JSON = {"separate_calls": "the calls are items of one list"}


def python_call(name, arguments, write):
    return f"{name}({', '.join(f'{key}={write(value)}' for key, value in arguments.items())})"


def double_quoted(value):
    """Write a Python literal with the strings of JSON, which Llama 4 prefers."""
    if isinstance(value, list):
        return f"[{', '.join(map(double_quoted, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {double_quoted(item)}' for key, item in value.items())}}}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


class TestPythonic(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "pythonic"
    lacks = MappingProxyType({**_PYTHON, "block_marks": _BARE})

    def wire(self, calls, content=""):
        return f"{content}[{', '.join(python_call(name, arguments, double_quoted) for name, arguments in calls)}]"


class TestPythonicInSingleQuotes(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "pythonic"
    lacks = MappingProxyType({**_SINGLE_QUOTED, "block_marks": _BARE})

    def wire(self, calls, content=""):
        written = ",\n".join(f"  {python_call(name, arguments, repr)}" for name, arguments in calls)
        return f"{content}[\n{written},\n]"

    def mark(self):
        return "["


class TestLlama4Pythonic(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "llama4_pythonic"
    block_marks = (("<|python_start|>", "<|python_end|>"),)
    lacks = _PYTHON

    def wire(self, calls, content=""):
        written = ", ".join(python_call(name, arguments, double_quoted) for name, arguments in calls)
        return f"{content}<|python_start|>[{written}]<|python_end|>"


class TestLlama4PythonicWithoutMarks(TestPythonic):
    component = "llama4_pythonic"


class TestLfm2(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "lfm2"
    block_marks = (("<|tool_call_start|>", "<|tool_call_end|>"),)
    lacks = _SINGLE_QUOTED

    def wire(self, calls, content=""):
        written = ", ".join(python_call(name, arguments, repr) for name, arguments in calls)
        return f"{content}<|tool_call_start|>[{written}]<|tool_call_end|>"


class TestLfm2InJson(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "lfm2"
    block_marks = (("<|tool_call_start|>", "<|tool_call_end|>"),)
    lacks = _JSON

    def wire(self, calls, content=""):
        written = json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])
        return f"{content}<|tool_call_start|>{written}<|tool_call_end|>"


class TestOlmo3(ParserSuite):
    plugin = "hermes_parsers.plugin"
    component = "olmo3"
    block_marks = (("<function_calls>", "</function_calls>"),)
    lacks = _PYTHON

    def wire(self, calls, content=""):
        written = "\n".join(python_call(name, arguments, json.dumps) for name, arguments in calls)
        return f"{content}<function_calls>{written}</function_calls>"
