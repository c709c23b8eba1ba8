"""The report in a browser: the address after # sets the view, and the tests read the DOM that the script builds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import pytest
import sample_run
from report_pages import EVIL, Page, outcome, write

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.component("chromium"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH; install Debian's chromium to drive the page"),
]


def dump(path: Path, tmp_path: Path, flags: tuple[str, ...] = (), **state: str) -> Page:
    """Open the page in Chromium at the address of a view, and parse the DOM that its script has built."""
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", *flags]
    address = f"{path.as_uri()}#{urlencode(state)}"
    done = subprocess.run([CHROMIUM, *options, address], capture_output=True, timeout=100, check=True)
    return Page(done.stdout.decode("utf-8", "replace"))


DRIVER = """<body><iframe id="page" src="report.html"></iframe><ol id="log"></ol><script>
const log = (...parts) => {
  const item = document.createElement("li");
  item.textContent = parts.join(" | ");
  document.getElementById("log").append(item);
};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
document.getElementById("page").onload = async () => {
  const w = page.contentWindow, d = w.document, q = (s) => d.querySelector(s);
  const press = (key) => d.body.dispatchEvent(new w.KeyboardEvent("keydown", { key, bubbles: true }));
  const where = () => decodeURIComponent(w.location.hash);
  q("#sort-reward").click();
  log("sort", where(), d.activeElement.id, q("#rollouts .reward span").textContent);
  d.querySelectorAll("#rollouts .pager button")[1].click();
  log("page", where());
  q("#f-q").value = "count-errors";
  q("#f-q").dispatchEvent(new w.Event("input", { bubbles: true }));
  await wait(500);
  log("search", where(), q("#count").textContent);
  q("#reset").click();
  q("#histogram button:enabled").click();
  log("bar", where());
  q("#reset").click();
  q("#sort-line").click();
  q("#rollouts tbody td.num").click();
  await wait(200);
  log("open", where(), d.activeElement.id, q("#overview").hidden);
  press("j");
  await wait(200);
  log("next", where());
  d.querySelectorAll(".foldall button")[1].click();
  log("fold", d.querySelectorAll(".message-card details[open]").length);
  w.history.back();
  await wait(200);
  log("back", where());
  press("Escape");
  await wait(200);
  log("list", where(), d.activeElement.textContent);
};
</script>"""


def rows(page: Page) -> list[list[str]]:
    body = page.root.one(id="rollouts").one("tbody")
    return [[cell.text for cell in row.children if not isinstance(cell, str)] for row in body.all("tr")]


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write(folder / "report.html", list(sample_run.outcomes()), run=sample_run.RUN)
    return folder / "report.html"


ENGINE = {
    "name": "ray",
    "workers": [
        {"name": "ray", "worker": "w1", "node": "ab12cd34", "rollouts": 90, "slots": 4, "lost": None},
        {"name": "ray", "worker": "w2", "node": "ab12cd34", "rollouts": 60, "slots": 4, "lost": None},
        {"name": "ray", "worker": "w3", "node": "ef56ab78", "rollouts": 31, "slots": 4, "lost": "its node has died"},
        {"name": "ray", "worker": EVIL, "node": "0912fe33", "rollouts": 19, "slots": 4, "lost": None},
        "no worker at all",
    ],
    "lost_workers": 1,
    "unconfirmed": 2,
}


@pytest.fixture(scope="module")
def run_on_nodes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("nodes")
    outcomes = list(sample_run.outcomes())
    for number, one in enumerate(outcomes):
        one["provenance"]["engine"] = {"name": "ray" if number else "local"}
    write(folder / "report.html", outcomes, run={**sample_run.RUN, "engine": ENGINE})
    return folder / "report.html"


def test_the_page_shows_which_engine_ran_where_and_what_it_lost(run_on_nodes, tmp_path):
    root = dump(run_on_nodes, tmp_path).root
    (tile,) = [tile for tile in root.one(id="tiles").all("div", class_="tile") if tile.one("h2").text == "Engine"]
    for words in ("ray", "4 workers on 3 nodes", "1 worker lost", "rollouts run by ray 199, local 1"):
        assert words in tile.text
    found = root.one(id="nodes")
    assert "hidden" not in found.attributes
    rows_of = [[cell.text for cell in row.all() if cell.tag in {"th", "td"}] for row in found.one("tbody").all("tr")]
    assert rows_of[0] == ["ab12cd34", "w1, w2", "150", "none"]
    assert rows_of[1] == ["ef56ab78", "w3", "31", "w3: its node has died"]
    assert rows_of[2][2:] == ["19", "none"]
    assert "2 cancelled rollouts may have left a sandbox" in root.one(id="notices").text
    assert root.one("title").text != "owned"


@pytest.mark.parametrize("engine", [{"name": "local"}, {}, {"name": "odd", "workers": 3}, "nothing"])
def test_a_run_without_workers_has_no_table_of_nodes(tmp_path, engine):
    write(tmp_path / "report.html", [outcome()], run={"engine": engine})
    root = dump(tmp_path / "report.html", tmp_path).root
    assert "hidden" in root.one(id="nodes").attributes
    assert ("in the command's own process" in root.one(id="tiles").text) == (engine == {"name": "local"})


def test_the_table_is_sorted_and_filtered_by_the_address(sample, tmp_path):
    page = dump(sample, tmp_path, sort="reward", dir="desc", task="merge-two-csv-files")
    chosen = [one for one in sample_run.outcomes() if one["task_id"] == "merge-two-csv-files"]
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


def test_stop_reason_status_and_reward_range_combine(sample, tmp_path):
    page = dump(sample, tmp_path, stop="max_turns", status="ok", min="0.5", max="0.99", sort="line")
    fitting = [
        one["rollout_id"]
        for one in sample_run.outcomes()
        if one["stop_reason"] == "max_turns" and one["reward"] is not None and 0.5 <= one["reward"] <= 0.99
    ]
    assert fitting
    assert [row[1].removesuffix(row[2]) for row in rows(page)] == fitting


def test_what_counts_in_no_mean_and_what_plugins_did_wrong_is_said(tmp_path):
    event = {"plugin": "acme", "hook": "hermes_on_turn", "kind": "error", "count": 3, "message": "<b>no"}
    run = {"event_problems": [event], "sink_errors": {"wandb: gone": 2}, "skipped_toolsets": ["tmux: <i>no"]}
    failure = {"blame": "model", "type": "ModelError", "message": ""}
    outcomes = [outcome(f"r-{n}", reward=None, failure=failure | {"message": f"lost {n}"}) for n in range(25)]
    dropped = outcome("r-dropped", reward=0.25, disposition="drop", stop_reason="max_turns")
    write(tmp_path / "report.html", [dropped, outcome("r-masked", disposition="mask"), *outcomes], run=run)
    page = dump(tmp_path / "report.html", tmp_path, sort="line")
    notices = page.root.one(id="notices").text
    assert "Plugin acme, hermes_on_turn (error), 3 ×: <b>no" in notices
    assert "Sink, 2 ×: wandb: gone" in notices
    assert "Not offered to the model: tmux: <i>no" in notices
    assert [row[3] for row in rows(page)][:2] == ["dropped", "1.000"]
    tiles = page.root.one(id="tiles").text
    assert "1 dropped, excluded from means: max turns 1" in tiles
    assert "1 masked" in tiles
    assert "26 rollouts without a reward that counts are not drawn" in page.root.one(id="histogram-note").text
    assert "5 more kinds (5 failures) in rollouts.jsonl" in page.root.one(id="failures-list").text
    opened = dump(tmp_path / "report.html", tmp_path, rollout="r-dropped")
    assert "The verifier gave 0.250" in opened.root.one("main", id="conversation").text


def test_long_tables_come_in_pages(sample, tmp_path):
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
def test_search_finds_what_conversations_say_and_not_how_they_are_stored(tmp_path, query, hits):
    call = {"id": "1", "function": {"name": "terminal", "arguments": json.dumps({"command": 'say "hi"'})}}
    said = [{"content": "a needle here"}, {"tool_calls": [call]}, {"content": "a < b & c"}, {"content": "Ünïcode"}]
    outcomes = [outcome(f"r-{n}", messages=[{"role": "assistant", **one}]) for n, one in enumerate(said)]
    write(tmp_path / "report.html", outcomes)
    page = dump(tmp_path / "report.html", tmp_path, q=query)
    assert [row[1].removesuffix(row[2]) for row in rows(page) if len(row) > 1] == hits


def test_a_link_opens_a_rollout_as_a_conversation(sample, tmp_path):
    wanted = next(one for one in sample_run.outcomes() if len(one["tool_errors"]) == 2)
    page = dump(sample, tmp_path, rollout=wanted["rollout_id"])
    view = page.root.one("main", id="conversation")
    assert "hidden" in page.root.one("main", id="overview").attributes
    assert len(view.all("div", class_="call")) == sum("tool_calls" in message for message in wanted["messages"])
    bad = [node for node in view.all("div", class_="call") if node.has(class_="bad")]
    assert [wrong["error"] in node.text for wrong, node in zip(wanted["tool_errors"], bad, strict=True)] == [True] * 2
    assert not [node for node in view.all("details", class_="reasoning") if "open" in node.attributes]
    assert "cd data && ls -l\nfor f in *.log" in view.text or "answer.txt" in view.text
    assert f"{wanted['reward']:.3f}" in view.text


def test_failures_say_who_is_to_blame(sample, tmp_path):
    wanted = next(one for one in sample_run.outcomes() if one["stop_reason"] == "model_error")
    view = dump(sample, tmp_path, rollout=wanted["rollout_id"]).root.one("main", id="conversation")
    box = view.one("div", class_="failure").text
    assert "ModelServerError" in box
    assert "blame: model" in box
    assert "HTTP 503" in box


def test_hostile_text_is_shown_and_never_run(tmp_path):
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
    write(tmp_path / "report.html", [hostile], run={"tasks": EVIL, "problems": [{"task_id": EVIL, "message": EVIL}]})
    page = dump(tmp_path / "report.html", tmp_path, rollout=EVIL, q="<img")
    assert page.root.one("title").text != "owned"
    assert not page.root.all("img")
    assert len(page.root.all("script")) == 5
    assert page.root.one("main", id="conversation").text.count("onerror=") > 10


def test_weird_messages_are_shown(tmp_path):
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


def test_left_out_characters_are_named_with_their_line(tmp_path):
    long = [{"role": "user", "content": "a" * 30_000}]
    write(tmp_path / "report.html", [outcome(f"r{n}", messages=long) for n in range(10)], budget=25_000)
    page = dump(tmp_path / "report.html", tmp_path, rollout="r6")
    assert "29,000 characters left out, see rollouts.jsonl line 7" in page.root.one("main", id="conversation").text
    assert "This run is large." in page.root.one(id="notices").text


def test_an_empty_run_has_a_page(tmp_path):
    write(tmp_path / "report.html", [])
    page = dump(tmp_path / "report.html", tmp_path)
    assert "hidden" not in page.root.one("main", id="overview").attributes
    assert "This run has no rollouts yet." in page.root.one(id="rollouts").text


def test_an_unknown_rollout_is_said(sample, tmp_path):
    page = dump(sample, tmp_path, rollout="nobody")
    assert "There is no rollout nobody" in page.root.one("main", id="conversation").text


def test_a_person_sorts_searches_opens_and_goes_back(tmp_path):
    outcomes = list(sample_run.outcomes(60))
    write(tmp_path / "report.html", outcomes, run=sample_run.RUN)
    (tmp_path / "driver.html").write_text(DRIVER)
    # The driver page may look into the frame only because both are local files and these flags say so.
    flags = ("--disable-web-security", "--allow-file-access-from-files", "--virtual-time-budget=10000")
    page = dump(tmp_path / "driver.html", tmp_path, flags)
    first, second = (one["rollout_id"] for one in outcomes[:2])
    rewards = [one["reward"] for one in outcomes if one["reward"] is not None]
    low = f"{min(rewards):g}"
    assert [item.text for item in page.root.one(id="log").all("li")] == [
        f"sort | #sort=reward&dir=desc | sort-reward | {max(rewards):.3f}",
        "page | #sort=reward&dir=desc&page=2",
        "search | #sort=reward&dir=desc&q=count-errors | 3 of 60",
        f"bar | #sort=reward&dir=desc&min={low}&max={low}",
        f"open | #sort=line&rollout={first} | rollout-title | true",
        f"next | #sort=line&rollout={second}",
        "fold | 0",
        f"back | #sort=line&rollout={first}",
        f"list | #sort=line | {first}",
    ]


def test_every_control_has_a_name(sample, tmp_path):
    page = dump(sample, tmp_path)
    for tag in ("input", "select"):
        controls = page.root.one("form", id="filters").all(tag)
        assert controls
        assert all(re.search(r"\w", node.parent.text if node.parent else "") for node in controls)
    assert all(node.text.strip() or node.attributes.get("aria-label") for node in page.root.all("button"))
