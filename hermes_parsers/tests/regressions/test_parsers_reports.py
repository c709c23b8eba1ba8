"""Inputs made after public bug reports of 2026, each with its correct value: whole, streamed and written again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parser_reading import meaning, pieces, read_stream

from hermes_parsers import get_parser
from hermes_testing.suites.parser.invariants import violations

REPORTS = json.loads((Path(__file__).parent / "cases" / "reports.json").read_text(encoding="utf-8"))
CASES = {case["id"].removeprefix("bug2026-"): case for case in REPORTS["cases"]}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def read(case, text=None):
    parser = get_parser(case["family"], **case.get("options", {}))
    return parser.parse(case["text"] if text is None else text, REPORTS["tools"][case["tools"]])


def fields_of(result):
    return {
        "content": result.content,
        "reasoning": result.reasoning,
        "calls": [{"name": name, "arguments": arguments} for name, arguments in meaning(result)],
    }


@each_case
def test_a_report_s_text_is_read_right(case):
    result = read(case)
    assert fields_of(result) == case["expected"]
    assert violations(case["text"], result) == []


@each_case
def test_a_report_s_text_is_read_the_same_however_it_is_cut(case):
    parser = get_parser(case["family"], **case.get("options", {}))
    text, tools, whole = case["text"], REPORTS["tools"][case["tools"]], read(case)
    for deltas in (
        *([text[:at], text[at:]] for at in range(len(text) + 1)),
        *(pieces(text, size) for size in (1, 2, 3, 7, 20)),
    ):
        assert read_stream(parser, deltas, tools)[1] == whole, deltas


@each_case
def test_a_report_s_text_is_written_back_byte_for_byte(case):
    parser = get_parser(case["family"], **case.get("options", {}))
    assert parser.render(read(case)) == case["text"]


@each_case
def test_what_a_report_means_is_written_as_the_template_does_and_reads_the_same(case):
    wanted = case["expected"]
    calls = [
        {"id": f"call{place:05d}", "type": "function", "function": call} for place, call in enumerate(wanted["calls"])
    ]
    message = {"role": "assistant", "content": wanted["content"], "reasoning_content": wanted["reasoning"]}
    parser = get_parser(case["family"])
    text = parser.render({**message, "tool_calls": calls})
    assert fields_of(parser.parse(text, REPORTS["tools"][case["tools"]])) == wanted


def test_no_case_is_left_out():
    assert len(CASES) == len(REPORTS["cases"]) == 43
