"""Writes reports for tests, and parses their HTML into a tree."""

from __future__ import annotations

import html.parser
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_runner.report.summary import SummaryBuilder
from hermes_runner.report.writer import write_report

VOID = {"meta", "link", "input", "br", "img", "hr"}
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!-- \u2028\u2029"


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
