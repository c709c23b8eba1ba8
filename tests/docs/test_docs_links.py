"""Every relative link in a page of the repository leads somewhere, and every anchor to a heading."""

from __future__ import annotations

import re
import subprocess
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1\s*$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


def pages():
    done = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:  # a copy of the repository that is no checkout
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*.md") if ".venv" not in path.parts]
    else:
        names = [Path(name) for name in done.stdout.decode().split("\0") if name]
    return sorted({str(name) for name in names if (ROOT / name).is_file()})


def links(text):
    return [found for found in _LINK.findall(_CODE.sub("", _FENCE.sub("", text))) if "://" not in found]


def anchors(text):
    """The names that a code host gives to headings: lower case, words with hyphens, no marks."""
    found = []
    for title in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        kept = "".join(c for c in plain if c in "-_ " or unicodedata.category(c)[0] in "LN")
        name = kept.replace(" ", "-")
        count = sum(1 for other in found if other == name or other.rpartition("-")[0] == name)
        found.append(f"{name}-{count}" if count and name in found else name)
    return set(found)


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    broken = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        known = target.exists() and (
            not anchor or (target.suffix == ".md" and anchor in anchors(target.read_text(encoding="utf-8")))
        )
        if not known:
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", pages())
def test_a_block_of_commands_has_each_on_a_line_of_its_own(page):
    """A block that was reflowed as prose could not be pasted."""
    blocks = _CONSOLE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [line for block in blocks for line in block.splitlines() if " $ " in line] == []


def test_a_link_to_nothing_and_an_anchor_of_no_heading_are_found():
    """Not in code, where brackets mean something else."""
    text = "# A `b` c\n\n[x](nowhere.md) [y](#a-b-c) `[z](no)`\n\n```\n[q](r)\n```\n"
    assert links(text) == ["nowhere.md", "#a-b-c"]
    assert anchors(text) == {"a-b-c"}


def test_every_page_of_the_docs_is_reached_from_its_index():
    seen, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        text = page.read_text(encoding="utf-8")
        waiting += [page.parent / link.partition("#")[0] for link in links(text) if link.partition("#")[0]]
    assert sorted(set((ROOT / "docs").rglob("*.md")) - seen) == []
