"""Tags that also occur in XML and code are calls only after a mark of the model, or if they name a tool."""

from __future__ import annotations

import pytest
from markup_families import FAMILIES, dialect_of, tag_of, write_calls
from parser_reading import function_tool, meaning, read, reasoning_tags, statuses

COMMON = ["qwen3_coder", "qwen3_6", "step5", "mimo", "seed_oss", "minimax_m2", "dots", "minicpm5"]
"""The families whose call tag is neither a special token nor contains a mark of the model."""
OWN = ["muse", "minimax_m3", "deepseek_v32", "deepseek_v4", "deepseek_v41", "gigachat35", "step3", "kimi_k3"]
NOW, BASH = function_tool("now"), function_tool("bash", command={"type": "string"})
ANSWERS = [
    "```xml\n<config>QQ</config>\n```",
    "A file:\n<config>\n  QQ\n  QQ\n</config>\nThat is all.",
    "Write QQ, if you like.",
    "Write QQ<",
    "Write QQ</",
    "QQ",
]
each_common = pytest.mark.parametrize("name", COMMON)


def self_closed(name, tool, space=""):
    tag = tag_of(name, tool)
    end = "<|sep|>" if name == "kimi_k3" else ">"
    return f"{tag.removesuffix(end)}{space}/{end}"


@each_common
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("tools", [(), (BASH,)])
@pytest.mark.parametrize("space", ["", " "])
def test_a_self_closed_tag_of_no_tool_is_text(name, answer, tools, space):
    text = answer.replace("QQ", self_closed(name, "now", space))
    result = read(name, text, *tools)
    assert (result.content, result.calls, result.attempts) == (text, (), ())


@each_common
def test_a_self_closed_tag_of_a_tool_is_a_call(name):
    result = read(name, f"Look. {self_closed(name, 'now')}", NOW, BASH)
    assert (meaning(result), statuses(result)) == ([("now", {})], ["repaired"])


@each_common
def test_a_self_closed_tag_before_a_call_is_one_too(name):
    call = write_calls(name, ("bash", {"command": "ls"}))
    dialect = dialect_of(name)
    bare = call[call.index(dialect.call.opening) : call.index(dialect.call_close) + len(dialect.call_close)]
    result = read(name, f"{self_closed(name, 'now')}\n{bare}")
    assert meaning(result) == [("now", {}), ("bash", {"command": "ls"})]


@pytest.mark.parametrize("name", [name for name in COMMON if name != "minicpm5"])
@pytest.mark.parametrize("tools", [(), (BASH,)])
def test_a_self_closed_tag_behind_the_mark_of_a_block_is_a_call(name, tools):
    opening, closing = dialect_of(name).blocks[0]
    result = read(name, f"{opening}\n{self_closed(name, 'now')}\n{closing}", *tools)
    assert (meaning(result), len(result.attempts)) == ([("now", {})], 1)


@pytest.mark.parametrize("name", OWN)
def test_a_self_closed_tag_with_a_mark_of_the_model_is_a_call(name):
    result = read(name, f"Look. {self_closed(name, 'now')}")
    assert (meaning(result), statuses(result)) == ([("now", {})], ["repaired"])


@each_common
@pytest.mark.parametrize("is_opened", [True, False])
def test_a_tag_that_other_text_has_ends_no_reasoning(name, is_opened):
    call = write_calls(name, ("bash", {"command": "rm"}))
    dialect = dialect_of(name)
    bare = call[call.index(dialect.call.opening) : call.index(dialect.call_close) + len(dialect.call_close)]
    opening = "" if is_opened else reasoning_tags(name)[0]
    result = read(name, f"{opening}It could be {bare}", BASH, reasoning_opened=is_opened)
    assert (result.calls, statuses(result), result.content) == ((), ["in_reasoning"], None)


def test_each_family_is_of_one_of_the_two_kinds():
    opened = {name for name in FAMILIES if dialect_of(name).is_block}
    assert {*COMMON, *OWN} | opened == set(FAMILIES)
