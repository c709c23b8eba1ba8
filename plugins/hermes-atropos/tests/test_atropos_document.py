"""ATROPOS.md is correct: its example runs, its names can be imported, its fields exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PLUGINS, ChatDouble, calls, lines, says

from hermes_atropos import HermesAgentEnvConfig
from hermes_atropos.command import parse
from hermes_atropos.groups.ledger import End

DOCUMENT = Path(__file__).parent.parent.joinpath("ATROPOS.md")


@pytest.fixture(scope="module")
def text():
    if not DOCUMENT.is_file():
        pytest.skip("ATROPOS.md lies in the repository only")
    return DOCUMENT.read_text(encoding="utf-8")


async def test_its_example_runs(text, tmp_path):
    code, *_ = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict = {"__name__": "colours"}
    exec(code, names)  # the document's own text
    command = '{"command": "printf blue > colour.txt"}'
    kind = names["Colours"]
    kind.build_model = lambda self: ChatDouble(
        lambda request: says("done") if len(request.conversation) > 1 else calls("terminal", command)
    )
    words = ["process", "--env.total_steps", "1", "--env.group_size", "2"]
    path = tmp_path / "g.jsonl"
    invocation = parse(kind, [*words, f"--env.data_path_to_save_groups={path}", f"--env.plugins={PLUGINS}"])
    await kind(invocation.env, invocation.servers).process_manager()
    assert lines(path)[0]["scores"] == [1.0, 1.0]


def test_its_map_of_imports_leads_to_names_that_are_there(text):
    rows = re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert len(rows) > 10
    for _, ours in rows:
        module, _, name = ours.rpartition(".")
        assert getattr(importlib.import_module(module), name) is not None


def test_its_atroposlib_names_are_atroposlibs(text):
    rows = re.findall(r"^\| `(atroposlib[\w.]+)` \|", text, re.MULTILINE)
    for theirs in rows:
        module, _, name = theirs.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("field", ["ledger_path", "failed_rollouts", "max_attempts", "min_group_size", "api_patience"])
def test_a_field_it_names_exists(text, field):
    assert f"`{field}`" in text
    assert field in HermesAgentEnvConfig.model_fields


def test_it_names_every_end(text):
    assert all(f"- `{end}`:" in text for end in End)
