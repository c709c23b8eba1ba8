"""What the pages in docs/ hold: their configs, tables and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BACKENDS = ("local", "docker", "ssh", "singularity", "nomad", "slurm", "ray", "modal", "pool")


def page(name: str) -> str:
    """Return the text of a page below docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return a page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def configs() -> Iterator[tuple[str, dict]]:
    """Yield every run config of docs/ with a name that tells where it stands."""
    for path in sorted(DOCS.rglob("*.md")):
        for number, block in enumerate(blocks(path.read_text(encoding="utf-8"), "yaml"), 1):
            if block.startswith("# run.yaml"):
                yield f"{path.relative_to(DOCS).with_suffix('')}-{number}", yaml.safe_load(block)


def rows(text: str, first: str) -> list[list[str]]:
    """Return the cells of all tables whose head begins with a word."""
    found, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not set(cells[0]) <= {"-"}:
            found.append(cells)
    return found


def words(cell: str) -> list[str]:
    """Return what stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)
