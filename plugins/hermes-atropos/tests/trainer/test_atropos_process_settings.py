"""What may change between two starts of a `process`, and what may not."""

from __future__ import annotations

import json
import logging
import uuid

import pytest
from pydantic import Field

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, config, lines, says, server

from hermes_atropos import AgentEnvConfig, HermesAgentEnvConfig
from hermes_atropos.trainer.process_settings import compare
from hermes_core.contracts.errors import OutputError


class OwnConfig(HermesAgentEnvConfig):
    run_name: str = Field(default_factory=lambda: uuid.uuid4().hex)
    output_dir: str = "out"


async def run_process(path, **fields):
    base = {name: value for name, value in config().model_dump().items() if name in config().model_fields_set}
    made = OwnConfig(**{**base, "data_path_to_save_groups": str(path), **fields})
    return await type("Env", (PuzzleEnv,), {"model": TokenDouble(lambda _: says("4"))})(
        made, [server()]
    ).process_manager()


MAY_CHANGE = {
    "output_dir": "elsewhere",
    "verifier_timeout": 5.0,
    "include_messages": True,
    "terminal_lifetime": 60.0,
    "allow_constrained": True,
    "min_items_sent_before_logging": 7,
}
MUST_NOT = {
    "group_size": 3,
    "seed": 1,
    "sampling": {"top_p": 0.5},
    "system_prompt": "be brief",
    "max_agent_turns": 3,
    "max_token_length": 77,
    "chat_template_kwargs": {"a": 1},
    "tool_call_parser": "hermes",
}


@pytest.mark.parametrize("field", MAY_CHANGE)
async def test_what_does_not_decide_what_a_group_is_may_change(tmp_path, field):
    await run_process(tmp_path / "g.jsonl", total_steps=1)
    counts = await run_process(tmp_path / "g.jsonl", **{field: MAY_CHANGE[field]})
    assert (counts["groups_before"], counts["groups_written"]) == (1, 1)


@pytest.mark.parametrize("field", MUST_NOT)
def test_what_decides_what_a_group_is_must_not_change(tmp_path, field):
    begun = config().model_dump(mode="json")
    changed = config(**{field: MUST_NOT[field]}).model_dump(mode="json")
    with pytest.raises(OutputError, match=rf"started with other settings: {field} \("):
        compare(tmp_path / "g.jsonl", begun, changed)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nomad_address", "http://other:4646"),
        ("sandbox_job_id", "job-2"),
        ("max_containers", 3),
        ("min_containers", 0),
        ("slots_per_container", 2),
        ("acquire_timeout_s", 3.0),
        ("purge_job_on_start", True),
        ("agent_tool_delay_s", 1.0),
        ("tool_server_url", "http://other"),
    ],
)
def test_addresses_and_sizes_of_an_agent_env_may_change(tmp_path, field, value):
    begun = AgentEnvConfig().model_dump(mode="json")
    compare(tmp_path / "g.jsonl", begun, AgentEnvConfig(**{field: value}).model_dump(mode="json"))


async def test_a_change_of_an_authors_own_field_is_a_warning_that_names_it(tmp_path, caplog):
    await run_process(tmp_path / "g.jsonl", total_steps=1, run_name="a")
    with caplog.at_level(logging.WARNING):
        await run_process(tmp_path / "g.jsonl", run_name="b")
    said = [record.getMessage() for record in caplog.records if "was started with another" in record.getMessage()]
    assert said == [f"{tmp_path / 'g.jsonl'} was started with another run_name: continuing with the new value"]


@pytest.mark.parametrize("field", ["allow_constrained", "logprobs_mode", "agent_temperature"])
async def test_a_file_of_a_version_that_did_not_know_a_field_goes_on(tmp_path, field):
    await run_process(tmp_path / "g.jsonl", total_steps=1)
    progress = tmp_path / "g.jsonl.progress"
    beginning, *records = lines(progress)
    del beginning["settings"][field]
    progress.write_text("".join(json.dumps(line) + "\n" for line in (beginning, *records)))
    assert (await run_process(tmp_path / "g.jsonl"))["groups_before"] == 1


def test_one_tokenizer_may_be_spelled_in_two_ways(tmp_path, monkeypatch):
    (tmp_path / "tokenizer").mkdir()
    monkeypatch.chdir(tmp_path)
    compare(tmp_path / "g.jsonl", {"tokenizer_name": "tokenizer"}, {"tokenizer_name": str(tmp_path / "tokenizer")})
