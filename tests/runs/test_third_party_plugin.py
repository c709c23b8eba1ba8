"""A stranger's package, built and installed as its users would, works without a change to the core.

The example under `plugins/acme-hermes` is renamed first, so that nothing of the source tree can stand in for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "plugins" / "acme-hermes"

TASK = {
    "id": "ada",
    "prompt": "Write the name of the first user into answer.txt",
    "files": {"data.json": '{"users": [{"name": "Ada Lovelace"}]}'},
    "verifier": {"name": "globex_word_overlap", "options": {"reference": "Ada Lovelace", "path": "answer.txt"}},
    "enabled_toolsets": ["globex", "terminal"],
    "solution": [
        {"tool": "globex_json_query", "arguments": {"path": "data.json", "query": "users.0.name"}},
        "echo Ada > answer.txt",
        {"tool": "globex_word_count", "arguments": {"path": "answer.txt"}},
    ],
}
PARSE = """
from hermes_core import PluginSettings, load_plugins
registry = load_plugins(PluginSettings(strict=True))
parser = registry.create("parser", registry.parser_for("globex/small"), {})
print([call.name for call in parser.parse('```tool\\n{"name": "hello"}\\n```').calls])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the renamed package is installed from its wheel."""
    folder = tmp_path_factory.mktemp("globex")
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "tests"))
    (source / "src" / "acme_hermes").rename(source / "src" / "globex_hermes")
    for path in [source / "pyproject.toml", *source.rglob("*.py")]:
        path.write_text(path.read_text().replace("acme", "globex").replace("Acme", "Globex"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", *options, "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "install", *options, "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return folder / "site"


def python(site, tmp_path, *arguments):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(site)}
    command = [sys.executable, *map(str, arguments)]
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 100}
    return subprocess.run(command, check=False, **options)


def test_it_is_listed_with_its_components(site, tmp_path):
    listing = python(site, tmp_path, "-m", "hermes_core.cli", "plugins", "list", "--json")
    assert listing.returncode == 0, listing.stderr
    shown = python(site, tmp_path, "-m", "hermes_core.cli", "plugins", "show", "globex-hermes", "--json")
    assert "globex-hermes" in listing.stdout
    for name in ("globex_json_query", "globex_word_count", "globex_word_overlap", "globex_fence", "globex_niced"):
        assert name in shown.stdout


def test_the_doctor_finds_nothing_wrong_with_it(site, tmp_path):
    report = python(site, tmp_path, "-m", "hermes_core.cli", "plugins", "doctor", "--json")
    assert report.returncode == 0, report.stdout + report.stderr
    assert "globex-hermes" in report.stdout


def test_a_run_uses_its_tools_its_verifier_and_its_backend(site, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    options = ["--model", "oracle", "--mistake-rate", "0", "--terminal-backend", "globex_niced", "--out", "out"]
    result = python(site, tmp_path, "-m", "hermes_core.cli", "run", "tasks.jsonl", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    (rollout,) = [json.loads(line) for line in (tmp_path / "out" / "rollouts.jsonl").read_bytes().splitlines()]
    answers = [message["content"] for message in rollout["messages"] if message["role"] == "tool"]
    assert answers[0] == '"Ada Lovelace"'
    assert json.loads(answers[2]) == {"lines": 1, "words": 1, "characters": 4}
    # Partial credit: one of the two words.
    assert rollout["reward"] == pytest.approx(2 / 3)
    assert rollout["reward_parts"] == {"precision": 1.0, "recall": 0.5}
    assert rollout["tool_errors"] == []
    assert "globex_niced" in json.dumps(rollout["provenance"])


def test_its_parser_is_chosen_for_its_models(site, tmp_path):
    result = python(site, tmp_path, "-c", PARSE)
    assert result.stdout == "['hello']\n", result.stderr
