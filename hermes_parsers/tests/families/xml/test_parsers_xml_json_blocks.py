"""Families with calls in tags that also read JSON in their blocks: no part of a closed block is lost."""

from __future__ import annotations

import pytest
from parser_reading import meaning, read, statuses

from hermes_parsers import get_parser

NOW = '{"name": "now", "arguments": {}}'
DOTS = "<dots_function_call>", "</dots_function_call>"
BLOCK, CALL = ("<ifm|tool_calls>", "</ifm|tool_calls>"), ("<ifm|tool_call>", "</ifm|tool_call>")
K3 = '<|open|>call tool="now" index="1"<|sep|><|open|>json type="object"<|sep|>'
K3_CLOSE, K3_END, K3_TOOLS = "<|close|>json<|sep|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>"
WITH_JUNK = [
    ("dots", f"{DOTS[0]}{NOW} junk{DOTS[1]}"),
    ("dots", f"{DOTS[0]}{NOW}\n</invoke>{DOTS[1]}"),
    ("dots", f"{DOTS[0]}[{NOW}] x {DOTS[1]}{DOTS[1]}"),
    ("k2_horizon", f"{BLOCK[0]}{CALL[0]}{NOW} junk{CALL[1]}{BLOCK[1]}"),
    ("k2_horizon", f"{BLOCK[0]}{CALL[0]}{NOW}{CALL[1]}\njunk\n{BLOCK[1]}"),
    ("k2_horizon", f"{CALL[0]}{NOW} junk{CALL[1]}"),
]
DOUBLED = [
    ("dots", f"{DOTS[0]}{NOW}{DOTS[1]}\n{DOTS[1]}"),
    ("dots", f"{DOTS[0]}{DOTS[0]}{NOW}{DOTS[1]}{DOTS[1]}"),
    ("k2_horizon", f"{BLOCK[0]}{CALL[0]}{NOW}{CALL[1]}{CALL[1]}{BLOCK[1]}"),
    ("k2_horizon", f"{BLOCK[0]}{CALL[0]}{NOW}{CALL[1]}\n{BLOCK[1]}\n{BLOCK[1]}"),
    ("k2_horizon", f"{CALL[0]}{NOW}{CALL[1]} {CALL[1]}"),
]


@pytest.mark.parametrize(("name", "block"), WITH_JUNK)
def test_text_behind_a_call_in_a_closed_block_is_an_attempt(name, block):
    result = read(name, f"Hi {block} Done.")
    assert (meaning(result), len(result.attempts)) == ([("now", {})], 2)
    assert (statuses(result)[1], result.content.split()) == ("invalid_json", ["Hi", "Done."])


@pytest.mark.parametrize(("name", "block"), DOUBLED)
def test_a_closing_mark_that_stands_there_twice_is_no_content(name, block):
    result = read(name, f"Hi {block} Done.")
    assert (meaning(result), statuses(result), result.content.split()) == ([("now", {})], ["ok"], ["Hi", "Done."])


@pytest.mark.parametrize(("name", "block"), WITH_JUNK + DOUBLED)
def test_every_cut_reads_the_same(name, block):
    text = f"Hi {block} Done. {block}"
    result = read(name, text)
    for cut in range(1, len(text)):
        stream = get_parser(name).stream()
        stream.feed(text[:cut])
        stream.feed(text[cut:])
        stream.finish()
        assert stream.result() == result, cut


@pytest.mark.parametrize("gap", ["", "\n"])
def test_kimi_k3_s_json_without_its_closing_mark_costs_no_call(gap):
    first, second = f'{K3}{{"a": "}}"}}{gap}{K3_END}', f"{K3}{{}}{K3_CLOSE}{K3_END}"
    result = read("kimi_k3", f"<|open|>tools<|sep|>{first}{second}{K3_TOOLS} Done.")
    assert (meaning(result), statuses(result)) == ([("now", {"a": "}"}), ("now", {})], ["unclosed", "ok"])
    assert result.content.strip() == "Done."


@pytest.mark.parametrize(
    ("first", "status"),
    [("now\n", "ok"), ('"name": "now", "arguments": {}}', "invalid_json"), ("now junk", "invalid_json")],
)
def test_a_call_in_json_behind_another_form_of_k2_horizon_is_one(first, status):
    block = f"{BLOCK[0]}\n{CALL[0]}{first}{CALL[1]}\n{CALL[0]}{NOW}{CALL[1]}\n{BLOCK[1]}"
    result = read("k2_horizon", f"Hi {block} Done.")
    assert (statuses(result), meaning(result)[-1], result.content.split()) == (
        [status, "ok"],
        ("now", {}),
        ["Hi", "Done."],
    )
