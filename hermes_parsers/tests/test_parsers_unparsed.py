"""A call in the text of a reply without a chosen parser ends the rollout, and is counted."""

from __future__ import annotations

import pytest

from hermes_core.contracts.model import ModelReply
from hermes_core.rollout import parse_reply
from hermes_parsers import get_parser
from hermes_parsers.catalog import FAMILIES

NAMES = [family.names[0] for family in FAMILIES if family.names[0] != "response_template"]
CALL = {"id": "call00000", "function": {"name": "terminal", "arguments": {"command": "ls -l"}}}


def is_unparsed(text, offered=("terminal",)):
    return parse_reply(ModelReply(content=text), None, offered=offered).is_unparsed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", ["", "I will look.\n\n"])
def test_a_call_of_every_family_is_known_as_one(name, content):
    text = get_parser(name).render({"role": "assistant", "content": content, "tool_calls": [CALL]})
    assert is_unparsed(text)


BARE = {
    "JSON": '{"name": "terminal", "arguments": {"command": "ls"}}',
    "a type": '{"type": "function", "name": "terminal", "parameters": {}}',
    "two": '[{"name": "terminal", "arguments": {}}, {"name": "terminal", "arguments": {}}]',
    "a fence": 'I look:\n```json\n{"name": "terminal", "arguments": {}}\n```\n',
    "Python": 'terminal(command="ls")',
    "a list of Python": "[terminal(command='ls')]",
    "below a note": '[1] See notes.\n  {"name": "terminal", "arguments": {}}',
}
ANSWERS = [
    "The function `terminal` lists files: <b>bold</b>, a < b and c > d.",
    '{"name": "Ann", "arguments": {}}',
    '{"name": "terminal"}',
    "[1, 2]",
    "[]",
    "{",
    "[" * 100_000,
    "print(1)",
    "#include <functional>, <tooltip>, std::map<callback_t> and <https://x.org/tools>",
    "<" + "tool" * 100_000,
    "<" + "tool_" * 100_000 + "'",
    "<" * 100_000 + "tool",
    "{\n" * 100_000,
    "<a href='https://x.org/function?call=1'>here</a> <p>std::vector<int> calls</p>",
    "",
]


@pytest.mark.parametrize("text", BARE.values(), ids=BARE)
def test_a_call_without_marks_is_known_by_its_tool(text):
    assert is_unparsed(text)
    assert not is_unparsed(text, ("patch",))


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_no_call(text):
    assert not is_unparsed(text)
