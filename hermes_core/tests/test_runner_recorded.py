"""What a run writes down of its settings."""

from __future__ import annotations

import io
import json

import pytest

from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_core.runner.config import RunConfig
from hermes_core.runner.recorded import recorded
from hermes_core.runner.run import Run


@pytest.fixture
def registry():
    extra = ("rollout_components", "keyed_components")
    return load_plugins(PluginSettings(allow=("hermes-agent-core",), extra=extra), environ={})


def config(tmp_path, **values):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "enabled_toolsets": ["terminal"]}
    return RunConfig.parse({**given, "terminal_backend": "keyed", **values}, source="the test")


def doors(key):
    return [{"name": "front", "key": key}, {"name": "back", "key": key}]


async def test_the_secrets_of_a_backend_are_in_no_file_and_another_token_continues_the_run(registry, tmp_path):
    first = config(
        tmp_path, backends={"keyed": {"token": "s3cret-one"}}, backend_options={"doors": doors("s3cret-two")}
    )
    await Run(first, registry, stream=io.StringIO()).execute()
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"run.json", "summary.json"} <= written.keys()
    assert [name for name, data in written.items() if b"s3cret" in data] == []
    assert json.loads(written["run.json"])["fingerprint"]["backend_options"]["doors"][1]["name"] == "back"
    second = config(tmp_path, backends={"keyed": {"token": "s3cret-new"}}, backend_options={"doors": doors("s3cret-2")})
    result = await Run(second, registry, stream=io.StringIO()).execute()
    assert result.summary["rollouts"]["total"] == 1
    third = config(tmp_path, backend_options={"doors": []})
    with pytest.raises(HermesError, match="differs in backend_options, backends"):
        await Run(third, registry, stream=io.StringIO()).execute()


def test_where_it_is_not_known_what_is_secret_nothing_is_written_down(registry, tmp_path):
    wrong = config(tmp_path, backend_options={"token": "s3cret", "nonsense": 1}, backends={"other": {"key": "s3cret"}})
    assert "s3cret" not in json.dumps(recorded(wrong, registry))
    unknown = config(tmp_path, terminal_backend="not-there", backend_options={"token": "s3cret"})
    assert recorded(unknown, registry)["backend_options"] == {"token": "(withheld)"}
