"""The report: what is in the file, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import runpy
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import OutputError
from hermes_core.runner.report import rebuild, write_report
from hermes_core.runner.report.view import detail_view, row_view, shorten
from hermes_core.runner.report.writer import embed
from hermes_core.runner.summary import SummaryBuilder

SAMPLE = runpy.run_path(str(Path(__file__).with_name("sample_run.py")))
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
VOID = {"meta", "link", "input", "br", "img", "hr"}
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!-- \u2028\u2029"

browser = [
    pytest.mark.component("chromium"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; install Debian's chromium to drive the page"),
]


class Node:
    def __init__(self, tag: str, attributes: dict[str, str | None], parent: Node | None) -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children: list[Node | str] = []

    def all(self, tag: str = "", **wanted: str) -> list[Node]:
        return [node for node in self.walk() if (not tag or node.tag == tag) and node.has(**wanted)]

    def one(self, tag: str = "", **wanted: str) -> Node:
        (node,) = self.all(tag, **wanted)
        return node

    def has(self, **wanted: str) -> bool:
        words = {key.rstrip("_"): value for key, value in wanted.items()}
        return all(value in (self.attributes.get(key) or "").split() for key, value in words.items())

    def walk(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child.walk()

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Page(html.parser.HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.root = self._at = Node("", {}, None)
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs), self._at)
        self._at.children.append(node)
        if tag not in VOID:
            self._at = node

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self._at
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self._at = node.parent

    def handle_data(self, data: str) -> None:
        self._at.children.append(data)


def outcome(rollout_id: str = "r-0", **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "rollout_id": rollout_id, "task_id": "task", "group_id": "g", "index": 0, "split": "train", "seed": 1,
        "messages": [{"role": "user", "content": "hello"}], "turns": 1, "reward": 1.0, "reward_parts": {},
        "reward_status": "ok", "reward_detail": "", "final_response": "", "stop_reason": "final_answer",
        "failure": None, "reward_failure": None, "tool_errors": [], "counters": {}, "provenance": {},
        "timings": {"total": 1.0, "model": 1.0}, "attempt": 1, "disposition": "score",
    }  # fmt: skip
    return values | changes


def write(path: Path, outcomes: list[dict[str, Any]], *, run: dict[str, Any] | None = None, **options: Any) -> Page:
    builder = SummaryBuilder()
    for one in outcomes:
        builder.add(one)
    write_report(path, builder.build(run=run or {}), (json.dumps(one) for one in outcomes), **options)
    return Page(path.read_text(encoding="utf-8"))


def details(page: Page) -> list[Any]:
    return [json.loads(node.text) for node in page.root.all("script", class_="rollout")]


def dump(path: Path, tmp_path: Path, state: str = "", **hash_state: Any) -> Page:
    """Open the page in Chromium at an address that holds a state, and parse the DOM its script has built."""
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", "--timeout=30000"]
    address = f"{path.as_uri()}#{state or urlencode(hash_state)}"
    done = subprocess.run([CHROMIUM, *flags, address], capture_output=True, timeout=100, check=True)
    return Page(done.stdout.decode("utf-8", "replace"))


def rows(page: Page) -> list[list[str]]:
    body = page.root.one(id="rollouts").one("tbody")
    return [[cell.text for cell in row.children if isinstance(cell, Node)] for row in body.all("tr")]


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write(folder / "report.html", list(SAMPLE["outcomes"]()), run=SAMPLE["RUN"])
    return folder / "report.html"


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
    assert [call["error"] for message in view["messages"] for call in message["calls"]] == [None, 0, None]


def test_a_reward_that_does_not_count_is_not_shown_as_one():
    assert row_view(outcome(reward=0.0, reward_status="error"), 1)["reward"] is None
    assert row_view(outcome(reward=float("nan")), 1)["reward"] is None


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
    from hermes_core.cli.report import configure, run

    parser = __import__("argparse").ArgumentParser()
    configure(parser)
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(outcome()) + "\n{torn")
    assert run(parser.parse_args([str(tmp_path)])) == 0
    printed = capsys.readouterr()
    assert "pass@1" in printed.out
    assert "report.html" in printed.out
    assert "1 lines of rollouts.jsonl are no rollouts" in printed.err


def test_a_folder_without_rollouts_is_refused(tmp_path):
    with pytest.raises(OutputError, match=r"rollouts\.jsonl was wanted(?s:.*)--out"):
        rebuild(tmp_path)


class TestInChromium:
    pytestmark = browser

    def test_the_table_is_sorted_and_filtered_by_the_address(self, sample, tmp_path):
        page = dump(sample, tmp_path, sort="reward", dir="desc", task="merge-two-csv-files")
        chosen = [one for one in SAMPLE["outcomes"]() if one["task_id"] == "merge-two-csv-files"]
        scored = sorted((one["reward"] for one in chosen if one["reward"] is not None), reverse=True)
        shown = rows(page)
        assert len(shown) == len(chosen)
        assert [row[3] for row in shown[: len(scored)]] == [f"{reward:.3f}" for reward in scored]
        assert all(row[3] in {"skipped", "error"} for row in shown[len(scored) :])
        header = page.root.one(id="sort-reward").parent
        assert header is not None
        assert header.attributes["aria-sort"] == "descending"
        assert page.root.one(id="count").text == f"{len(chosen)} of 200"
        assert "hidden" in page.root.one("main", id="conversation").attributes

    def test_stop_reason_status_and_reward_range_combine(self, sample, tmp_path):
        page = dump(sample, tmp_path, stop="max_turns", status="ok", min="0.5", max="0.99", sort="line")
        fitting = [
            one["rollout_id"]
            for one in SAMPLE["outcomes"]()
            if one["stop_reason"] == "max_turns" and one["reward"] is not None and 0.5 <= one["reward"] <= 0.99
        ]
        assert fitting
        assert [row[1].removesuffix(row[2]) for row in rows(page)] == fitting

    def test_long_tables_come_in_pages(self, sample, tmp_path):
        page = dump(sample, tmp_path, page="4", sort="line", dir="desc")
        assert [row[0] for row in rows(page)] == [str(number) for number in range(50, 0, -1)]

    @pytest.mark.parametrize(
        ("query", "hits"),
        [
            ("NEEDLE", ["r-0"]),
            ('say "hi"', ["r-1"]),
            ("a < b & c", ["r-2"]),
            ("ünï", ["r-3"]),
            ("tool_errors", []),
            ("provenance", []),
        ],
    )
    def test_search_finds_what_conversations_say_and_not_how_they_are_stored(self, tmp_path, query, hits):
        call = {"id": "1", "function": {"name": "terminal", "arguments": json.dumps({"command": 'say "hi"'})}}
        said = [{"content": "a needle here"}, {"tool_calls": [call]}, {"content": "a < b & c"}, {"content": "Ünïcode"}]
        outcomes = [outcome(f"r-{n}", messages=[{"role": "assistant", **one}]) for n, one in enumerate(said)]
        write(tmp_path / "report.html", outcomes)
        page = dump(tmp_path / "report.html", tmp_path, q=query)
        assert [row[1].removesuffix(row[2]) for row in rows(page) if len(row) > 1] == hits

    def test_a_link_opens_a_rollout_as_a_conversation(self, sample, tmp_path):
        wanted = next(one for one in SAMPLE["outcomes"]() if len(one["tool_errors"]) == 2)
        page = dump(sample, tmp_path, rollout=wanted["rollout_id"])
        view = page.root.one("main", id="conversation")
        assert "hidden" in page.root.one("main", id="overview").attributes
        assert len(view.all("div", class_="call")) == sum("tool_calls" in message for message in wanted["messages"])
        bad = [node for node in view.all("div", class_="call") if node.has(class_="bad")]
        assert [wrong["error"] in node.text for wrong, node in zip(wanted["tool_errors"], bad, strict=True)] == [
            True
        ] * 2
        assert not [node for node in view.all("details", class_="reasoning") if "open" in node.attributes]
        assert "cd data && ls -l\nfor f in *.log" in view.text or "answer.txt" in view.text
        assert f"{wanted['reward']:.3f}" in view.text

    def test_failures_say_who_is_to_blame(self, sample, tmp_path):
        wanted = next(one for one in SAMPLE["outcomes"]() if one["stop_reason"] == "model_error")
        view = dump(sample, tmp_path, rollout=wanted["rollout_id"]).root.one("main", id="conversation")
        box = view.one("div", class_="failure").text
        assert "ModelServerError" in box
        assert "blame: model" in box
        assert "HTTP 503" in box

    def test_hostile_text_is_shown_and_never_run(self, tmp_path):
        call = {"id": EVIL, "function": {"name": EVIL, "arguments": json.dumps({EVIL: EVIL})}}
        fields = {"blame": EVIL, "type": EVIL, "message": EVIL}
        error = {"turn": 1, "tool_name": EVIL, "arguments": EVIL, "error": EVIL, "tool_result": EVIL}
        messages = [
            {
                "role": EVIL,
                "content": EVIL,
                "name": EVIL,
                "reasoning_content": EVIL,
                "more": EVIL,
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": EVIL, "content": json.dumps({"output": EVIL})},
        ]
        hostile = outcome(
            EVIL, task_id=EVIL, messages=messages, failure=fields, reward_failure=fields, tool_errors=[error],
            reward_detail=EVIL, final_response=EVIL + "!", reward_parts={EVIL: 1.0}, stop_reason=EVIL,
            counters={}, provenance={EVIL: EVIL}, timings={EVIL: 1.0},
        )  # fmt: skip
        write(
            tmp_path / "report.html", [hostile], run={"tasks": EVIL, "problems": [{"task_id": EVIL, "message": EVIL}]}
        )
        page = dump(tmp_path / "report.html", tmp_path, rollout=EVIL, q="<img")
        assert page.root.one("title").text != "owned"
        assert not page.root.all("img")
        assert len(page.root.all("script")) == 5
        assert page.root.one("main", id="conversation").text.count("onerror=") > 10

    def test_weird_messages_are_shown(self, tmp_path):
        messages = [
            {"role": "user", "content": None},
            {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "content": "\x1b[31mred\u202e\ud800"},
            {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "t", "arguments": "{broken"}}]},
            {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
            {"role": "user", "content": "h" * 50_000},
            "no message at all",
        ]
        write(tmp_path / "report.html", [outcome("weird\n#&=", messages=messages)])
        text = dump(tmp_path / "report.html", tmp_path, rollout="weird\n#&=").root.one("main", id="conversation").text
        for expected in ("(empty message)", "part one", "\u241b[31mred[U+202E]", "arguments are not JSON", "orphan"):
            assert expected in text
        assert "Show all 50,000 characters" in text
        assert "no message at all" in text

    def test_left_out_characters_are_named_with_their_line(self, tmp_path):
        long = [{"role": "user", "content": "a" * 30_000}]
        write(tmp_path / "report.html", [outcome(f"r{n}", messages=long) for n in range(10)], budget=25_000)
        page = dump(tmp_path / "report.html", tmp_path, rollout="r6")
        assert "29,000 characters left out, see rollouts.jsonl line 7" in page.root.one("main", id="conversation").text
        assert "This run is large." in page.root.one(id="notices").text

    def test_an_empty_run_has_a_page(self, tmp_path):
        write(tmp_path / "report.html", [])
        page = dump(tmp_path / "report.html", tmp_path)
        assert "hidden" not in page.root.one("main", id="overview").attributes
        assert "This run has no rollouts yet." in page.root.one(id="rollouts").text

    def test_an_unknown_rollout_is_said(self, sample, tmp_path):
        page = dump(sample, tmp_path, rollout="nobody")
        assert "There is no rollout nobody" in page.root.one("main", id="conversation").text

    def test_every_control_has_a_name(self, sample, tmp_path):
        page = dump(sample, tmp_path)
        for tag in ("input", "select"):
            controls = page.root.one("form", id="filters").all(tag)
            assert controls
            assert all(re.search(r"\w", node.parent.text if node.parent else "") for node in controls)
        assert all(node.text.strip() or node.attributes.get("aria-label") for node in page.root.all("button"))
