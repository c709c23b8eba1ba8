"""The file of the report: what it contains, and what happens if it cannot be written."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_pages import EVIL, Page, outcome, write

from hermes_core.contracts.errors import OutputError
from hermes_runner.report.rebuild import rebuild
from hermes_runner.report.summary import SummaryBuilder
from hermes_runner.report.view import detail_view, row_view, shorten
from hermes_runner.report.writer import embed, write_report


def details(page: Page) -> list[Any]:
    return [json.loads(node.text) for node in page.root.all("script", class_="rollout")]


def test_the_file_asks_for_nothing_and_runs_only_its_own_script(tmp_path):
    page = write(tmp_path / "report.html", [outcome()])
    policy = page.root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"] or ""
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    code = [node for node in page.root.all("script") if "type" not in node.attributes]
    for node, directive in ((code[0], "script-src"), (page.root.one("style"), "style-src")):
        digest = base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert len(code) == 1
    assert not [node for node in page.root.walk() if {"src", "style", "onclick"} & node.attributes.keys()]
    assert not page.root.all("link")


def test_hostile_text_stays_inside_its_data_element(tmp_path):
    hostile = outcome(EVIL, task_id=EVIL, messages=[{"role": EVIL, "content": EVIL}], reward_detail=EVIL)
    run = {"tasks": EVIL, EVIL: EVIL}
    page = write(tmp_path / "report.html", [hostile], run=run)
    assert len(page.root.all("script")) == 5
    assert not page.root.all("img")
    assert "\u2028" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert details(page)[0]["messages"][0]["text"] == {"t": EVIL}
    assert json.loads(page.root.one(id="summary").text)["run"] == run
    assert EVIL[:20] in page.root.one("title").text


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
@settings(max_examples=80, deadline=None)
def test_embedded_text_survives_and_cannot_end_its_element(text):
    data = embed({"text": text})
    assert b"<" not in data
    assert json.loads(data.decode("utf-8")) == {"text": text}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {"role": JSON, "content": JSON},
    optional={"tool_calls": JSON, "reasoning_content": JSON, "tool_call_id": JSON, "name": JSON, "surprise": JSON},
)


@given(st.lists(MESSAGES | JSON, max_size=4), st.sampled_from(sorted(outcome())), JSON)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_json_has_a_view(messages, key, value):
    weird = outcome(messages=messages) | {key: value}
    data = json.loads(embed([row_view(weird, 1), detail_view(weird)]))
    assert len(data[1]["messages"]) == len(weird["messages"] if isinstance(weird["messages"], list) else [])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, "three"], "one\ntwo\nthree"),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}], None),
        ({"a": 1}, '{\n  "a": 1\n}'),
        ("\x00\x1b[31m\ud800", "\x00\x1b[31m\ud800"),
    ],
)
def test_contents_of_every_form_are_shown_as_text(content, text):
    shown = detail_view(outcome(messages=[{"role": "user", "content": content}]))["messages"][0]["text"]["t"]
    assert "data:x" in shown if text is None else shown == text


def test_a_tool_error_is_attached_to_the_call_of_its_turn():
    def turn(number: int) -> list[dict[str, Any]]:
        call = {"id": f"c{number}", "function": {"name": "terminal", "arguments": '{"command": "x"}'}}
        return [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "?"},
        ]

    error = {"turn": 2, "tool_name": "terminal", "arguments": '{"command": "x"}', "error": "no", "tool_result": ""}
    given_in_task = {"role": "assistant", "content": "an example"}
    messages = [given_in_task, *turn(1), *turn(2), *turn(3)]
    view = detail_view(outcome(messages=messages, tool_errors=[error], turns=3))
    assert [call.get("error") for message in view["messages"] for call in message.get("calls", ())] == [None, 0, None]


def test_a_reward_that_does_not_count_is_not_shown_as_one():
    assert row_view(outcome(reward=0.0, reward_status="error"), 1)["reward"] is None
    assert row_view(outcome(reward=float("nan")), 1)["reward"] is None


def test_the_reward_of_a_dropped_rollout_is_kept_apart():
    row = row_view(outcome(reward=0.5, disposition="drop"), 1)
    assert (row["reward"], row["dropped_reward"]) == (None, 0.5)
    assert row_view(outcome(reward=0.5, disposition="mask"), 1)["reward"] == 0.5


def test_large_runs_keep_heads_and_say_what_is_left_out(tmp_path):
    long = [{"role": "user", "content": "a" * 30_000}, {"role": "user", "content": "short"}]
    page = write(tmp_path / "report.html", [outcome(f"r{n}", messages=long) for n in range(30)], budget=100_000)
    facts = json.loads(page.root.one(id="page-facts").text)
    assert facts["limit"] == 1_000
    for detail in details(page):
        assert detail["messages"][0]["text"] == {"t": "a" * 1_000, "cut": 29_000}
        assert detail["messages"][1]["text"] == {"t": "short"}
    assert len(details(page)) == 30


def test_small_runs_keep_everything(tmp_path):
    page = write(tmp_path / "report.html", [outcome(messages=[{"role": "user", "content": "a" * 300_000}])])
    assert json.loads(page.root.one(id="page-facts").text)["limit"] is None
    assert len(details(page)[0]["messages"][0]["text"]["t"]) == 300_000


def test_shortening_twice_adds_up():
    assert shorten(shorten({"t": "abcdefghij", "x": 1}, 6), 2) == {"t": "ab", "cut": 8}


def test_memory_is_that_of_one_rollout(tmp_path):
    line = json.dumps(outcome(messages=[{"role": "user", "content": "b" * 100_000}])).encode()
    summary = SummaryBuilder().build(run={})
    tracemalloc.start()
    try:
        write_report(tmp_path / "report.html", summary, (line for _ in range(300)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "report.html").stat().st_size > 30_000_000
    assert peak < 4_000_000


def test_lines_that_are_no_rollouts_are_counted_and_named(tmp_path):
    good = json.dumps(outcome())
    lines = [good, "{torn", "", b"\xff\xfe", "[1]", "[" * 100_000, good.encode()]
    write_report(tmp_path / "report.html", SummaryBuilder().build(run={}), lines)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    facts = json.loads(page.root.one(id="page-facts").text)
    assert (facts["rollouts"], facts["unreadable"], facts["unreadable_lines"]) == (2, 4, [2, 4, 5, 6])
    assert [json.loads(node.text)["line"] for node in page.root.all("script", class_="row")] == [1, 7]


def test_a_report_that_fails_midway_leaves_the_old_one(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("old")

    def lines() -> Iterator[str]:
        yield json.dumps(outcome())
        raise RuntimeError("the disk was unplugged")

    with pytest.raises(RuntimeError):
        write_report(target, SummaryBuilder().build(run={}), lines())
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_unwritable_folder_is_said_with_what_to_do(tmp_path):
    with pytest.raises(OutputError, match=r"could not be written(?s:.*)hermes-core report"):
        write_report(tmp_path / "missing" / "report.html", SummaryBuilder().build(run={}), [])


def test_rebuilding_keeps_the_facts_and_the_speed_of_the_run(tmp_path):
    lines = [outcome(f"r{n}", reward=n / 4) for n in range(4)]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    speed = {"wall_seconds": 2.0, "turns_per_second": 2.0, "rollouts_per_second": 2.0}
    (tmp_path / "summary.json").write_text(json.dumps({"run": {"tasks": "t.jsonl"}, "speed": speed}))
    summary = rebuild(tmp_path)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert summary["run"] == {"tasks": "t.jsonl"}
    assert summary["speed"] == speed
    assert (summary["rollouts"]["total"], summary["rollouts"]["unreadable_lines"]) == (4, 1)
    assert "t.jsonl" in (tmp_path / "report.html").read_text()


def test_the_report_command_prints_the_table(tmp_path, capsys):
    from hermes_runner.commands.report import ReportCommand

    command, parser = ReportCommand(), __import__("argparse").ArgumentParser()
    command.configure(parser)
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(outcome()) + "\n{torn")
    assert command.run(parser.parse_args([str(tmp_path)])) == 0
    printed = capsys.readouterr()
    assert "pass@1" in printed.out
    assert "report.html" in printed.out
    assert "1 line of rollouts.jsonl is not a rollout" in printed.err


def test_a_folder_without_rollouts_is_refused(tmp_path):
    with pytest.raises(
        OutputError, match=r"expected a folder with rollouts\.jsonl(?s:.*)hermes-core report runs/latest"
    ):
        rebuild(tmp_path)
