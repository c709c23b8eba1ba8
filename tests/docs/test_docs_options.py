"""The tables in docs/ are those of the code: every option with its default, every flag, every message."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import shlex
from enum import Enum
from pathlib import Path

import pytest
from docs_pages import BACKENDS, DOCS, ROOT, blocks, page, rows, words
from pydantic_core import PydanticUndefined

from hermes_core.discovery import PluginSettings, load_plugins

PACKAGES = {
    "docker": "hermes_backend_docker",
    "modal": "hermes_backend_modal",
    "pool": "plugins/hermes-pool",
    "local": "plugins/hermes-sandbox",
}


@pytest.fixture(scope="module")
def registry():
    return load_plugins(PluginSettings(), environ={})


def model_of(registry, name):
    if name == "engines":
        return importlib.import_module("hermes_backend_ray.rollout_workers.engine_options").EngineOptions
    return registry.load("backend", name).Options


def options_of_page(name):
    text = page("engines.md" if name == "engines" else f"backends/{name}.md")
    return [(words(cells[0]), cells[1]) for cells in rows(text, "option")]


def default_as_written(default):
    """How a table writes a default; None where words say it better."""
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:g}"
    if isinstance(default, str | Path) and str(default):
        return str(default)
    return None


@pytest.mark.parametrize("name", [*BACKENDS, "engines"])
def test_every_option_stands_in_the_table_of_its_page_once(registry, name):
    names = [option for options, _ in options_of_page(name) for option in options]
    assert sorted(names) == sorted(model_of(registry, name).model_fields)


@pytest.mark.parametrize("name", [*BACKENDS, "engines"])
def test_the_defaults_in_the_table_are_those_of_the_code(registry, name):
    fields = model_of(registry, name).model_fields
    wrong = []
    for options, cell in options_of_page(name):
        plain = cell.replace("`", "")
        for option in options:
            default = fields[option].default
            text = None if default is PydanticUndefined else default_as_written(default)
            # One that depends on the others (1 where neither is given) or on the machine is told in words.
            if text is None or re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w-]|\.\d*[1-9])", plain):
                continue
            wrong.append((option, text, cell))
    assert wrong == []


@pytest.mark.parametrize("command", ["tool-executor", "tool-server"])
def test_every_flag_of_a_service_stands_in_the_table_of_its_page(capsys, command):
    from hermes_core.cli import main

    with pytest.raises(SystemExit):
        main([command, "serve", "--help"], environ={})
    usage = capsys.readouterr().out.split("\noptions:")[0]
    table = {flag for cells in rows(page(f"{command}.md"), "flag") for flag in words(cells[0])}
    assert table == set(re.findall(r"--[a-z-]+", usage))


@functools.cache
def literals(folder):
    """The texts of a package, an f-string's with `…` for what it puts in."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def sources(name):
    """Where the messages of a page come from: its package, and what all of them are built on."""
    own = ROOT / PACKAGES.get(name, f"plugins/hermes-backend-{name}")
    shared = ("models", "pool", "runner", "sandbox", "tool-services", "tools")
    return [own / "src", ROOT / "hermes_core" / "src", *(ROOT / f"plugins/hermes-{part}/src" for part in shared)]


PAGES = {
    **{name: f"backends/{name}.md" for name in BACKENDS},
    **{f"plugins {path.stem}": f"plugins/{path.name}" for path in sorted(DOCS.glob("plugins/*.md"))},
    "ray engine": "engines.md",
    "pool executor": "tool-executor.md",
    "pool server": "tool-server.md",
}


@pytest.mark.parametrize("name", PAGES)
def test_every_message_shown_is_one_that_the_code_can_print(name):
    text = page(PAGES[name])
    known = "\n".join(map(literals, sources(name.split()[0])))
    cells = [cells[0] for head in ("message", "said") for cells in rows(text, head)]
    messages = [found for cell in cells for found in words(cell) if cell == f"`{found}`"]
    assert messages
    unknown = [message for message in messages for part in message.split("…") if part.strip(" :,") not in known]
    assert unknown == []


def hints():
    for name, path in PAGES.items():
        for block in blocks(page(path), "text"):
            for line in block.splitlines():
                if line.startswith("    → "):
                    yield name.split()[0], line.removeprefix("    → ")


@pytest.mark.parametrize(("name", "hint"), [*hints()])
def test_every_next_command_that_a_page_shows_is_one_that_the_code_can_print(name, hint):
    """Between the parts that are put in."""
    if hint.startswith("pip install '"):
        return  # the requirement itself, which the doctor's tests look at
    known = [said for folder in sources(name) for said in literals(folder).split("\n") if len(said.strip("… ")) > 4]
    possible = [
        re.compile(".*".join(map(re.escape, re.split("…(?!})", said))))
        for said in known
        if said[:9] in hint or "…" in said
    ]
    assert any(pattern.fullmatch(hint) for pattern in possible)


def commands():
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in blocks(path.read_text(encoding="utf-8"), "console"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("$ ") and "hermes-core " in line:
                    yield shlex.split(line.removeprefix("$ "), comments=True)


@pytest.mark.parametrize("words", [pytest.param(found, id=" ".join(found)[:60]) for found in commands()])
def test_every_flag_of_every_command_shown_exists(capsys, words):
    from hermes_core.cli import main

    rest = words[words.index("hermes-core") + 1 :]
    while rest[0] == "-p":
        rest = rest[2:]
    depth = 2 if rest[0] in {"sandboxes", "plugins", "tasks", "tool-executor", "tool-server"} else 1
    with pytest.raises(SystemExit) as ended:
        main([*rest[:depth], "--help"], environ={})
    usage = capsys.readouterr().out
    assert ended.value.code == 0
    assert [word for word in rest[depth:] if word.startswith("--") and word not in usage] == []
