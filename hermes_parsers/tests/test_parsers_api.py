"""The public names: finding a parser, bad input, and the cost of an import."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from hermes_core.contracts.errors import UnknownComponentError
from hermes_core.contracts.parsing import ToolCallParser
from hermes_parsers import get_parser, list_parsers

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
# The names in hermes-agent and in the documentation of vLLM and SGLang, which users type.
NAMES = (
    "hermes qwen qwen25 qwen3_json longcat mistral llama3_json llama4_json llama3 pythonic llama4_pythonic olmo3 "
    "qwen3_coder qwen3_xml seed_oss step3p5 mimo deepseek_v3 deepseekv3 deepseek_v31 deepseek_v3_1 deepseekv31 "
    "deepseek_v32 deepseekv32 deepseek_v4 deepseekv4 kimi_k2 glm45 glm47 minimax_m2 minimax-m2 granite granite4 "
    "granite-20b-fc internlm interns1 jamba phi4_mini_json xlam gpt-oss openai lfm2 hunyuan hunyuan_a13b gemma4 "
    "functiongemma response_template hf"
)


@pytest.mark.parametrize("name", NAMES.split())
def test_the_names_users_know_are_there(name):
    assert name in list_parsers()


@pytest.mark.parametrize("name", sorted({*list_parsers()} - {"response_template", "hf"}))
def test_every_name_gives_a_parser_that_takes_plain_text(name):
    parser = get_parser(name)
    assert isinstance(parser, ToolCallParser)
    result = parser.parse("The answer is 42.")
    assert (result.calls, result.attempts) == ((), ())


@pytest.mark.parametrize(
    ("name", "near"), [("hermess", "hermes"), ("Hermes", "hermes"), ("qwen4", "qwen3"), ("GLM-45", "glm45")]
)
def test_an_unknown_name_says_what_is_near(name, near):
    with pytest.raises(UnknownComponentError, match=rf"did you mean .*\b{near}\b.*\?") as raised:
        get_parser(name)
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize("name", ["hermess", "nothing-like-it", ""])
def test_an_unknown_name_is_no_occasion_to_list_all(name):
    with pytest.raises(UnknownComponentError, match="hermes-core plugins list --load --json") as raised:
        get_parser(name)
    assert len({*list_parsers()} & {*re.findall(r"[\w-]+", str(raised.value))}) <= 5


@pytest.mark.parametrize("name", [None, 5, b"hermes", ["hermes"]])
def test_a_name_that_is_no_text_is_an_error_that_says_so(name):
    with pytest.raises(TypeError, match=f"expected a parser's name such as 'hermes', got {type(name).__name__}"):
        get_parser(name)


@pytest.mark.parametrize("tools", ["get_weather", {"type": "function"}, 5, b"x", [None]])
def test_tools_that_are_no_list_of_schemas_make_no_call_unknown_and_no_error(tools):
    parser = get_parser("hermes")
    assert parser.parse(CALL, tools) == parser.parse(CALL)


def test_drafts_are_promoted_only_when_asked_for_and_when_no_call_follows():
    """Issue vllm#39056: a call drafted in reasoning was run, or the only call was lost."""
    text = f"<think>{CALL}</think>done"
    assert get_parser("hermes").parse(text).calls == ()
    assert [call.name for call in get_parser("hermes", promote_drafts=True).parse(text).calls] == ["f"]
    later = text.replace("done", CALL.replace('"f"', '"g"'))
    assert [call.name for call in get_parser("hermes", promote_drafts=True).parse(later).calls] == ["g"]


def test_reasoning_that_the_prompt_has_opened_is_reasoning():
    parser = get_parser("hermes", reasoning_opened=True)
    result = parser.parse(f"hm {CALL}</think>\n\n{CALL}")
    assert ([call.name for call in result.calls], result.content) == (["f"], None)
    assert [attempt.status for attempt in result.attempts] == ["in_reasoning", "ok"]


def test_a_closing_tag_alone_makes_what_stood_before_it_reasoning():
    result = get_parser("hermes").parse(f"Plan first.</think>\n\nNow.\n{CALL}")
    assert (result.reasoning, result.content, len(result.calls)) == ("Plan first.", "Now.", 1)


def test_a_wire_id_is_kept_apart_from_an_id_that_repeats():
    block = '<tool_call>{"name": "f", "arguments": {}, "id": "x"}</tool_call>'
    first, second = get_parser("hermes").parse(block + block).calls
    assert (first.id, first.wire_id, second.wire_id) == ("x", "x", "x")
    assert second.id != first.id


def test_a_stream_has_no_result_before_its_end():
    stream = get_parser("hermes").stream()
    stream.feed("text")
    with pytest.raises(RuntimeError, match="finish"):
        stream.result()


def test_a_huge_message_is_parsed():
    filler = "word " * 2_000_000
    result = get_parser("hermes").parse(filler + CALL)
    assert (len(result.calls), len(result.content or "")) == (1, len(filler))


def test_text_that_was_not_utf8_is_parsed():
    text = b"caf\xe9 ".decode("utf-8", "replace") + CALL + "\ud800"
    result = get_parser("hermes").parse(text)
    assert len(result.calls) == 1
    assert result.content == "caf\ufffd \ud800"


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "mistral"])
def test_importing_a_family_loads_nothing_heavy(name):
    script = (
        "import sys, json\nfrom hermes_parsers import get_parser\nget_parser(sys.argv[1])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, check=True)
    heavy = {"openai", "pydantic", "asyncio", "aiohttp", "transformers", "pluggy", "importlib.metadata"}
    assert heavy & set(json.loads(done.stdout)) == set()
