"""Chat completions of a default vLLM, which reads no calls itself: our parser reads them in the raw text."""

from __future__ import annotations

import json

import pytest
from families import FAMILIES

# The template of the fifth lists no tools.
LISTING = {name: family for name, family in FAMILIES.items() if name != "deepseekv3"}
TASK = {"id": "t", "prompt": "Write words.", "verifier": {"name": "exit_code", "options": {"command": "true"}}}


@pytest.fixture
def run_family(engines, hermes, tasks):
    """Let a family's model make a call in every turn, which a random one does under a regular expression."""

    def _run_family(family, *arguments):
        engine = engines.serve(family)
        constraint = {"structured_outputs": {"regex": family.calls("echo [a-z]{1,8}")}}
        return hermes(
            *("run", tasks(TASK), "--model", f"{engine.url}/v1", "--model-name", engine.model_name, "--out", "out"),
            *("--extra-body", json.dumps(constraint), "--max-tokens", "200", "--max-agent-turns", "3"),
            *("--enabled-toolsets", "terminal", "--max-attempts", "1", "--group-size", "2", *arguments),
        )

    return _run_family


@pytest.mark.parametrize("family", LISTING.values(), ids=LISTING)
def test_calls_of_several_turns_are_read_by_our_parser(run_family, rollouts, family):
    result = run_family(family, "--parser", family.parser)
    assert result.returncode == 0, result.stderr
    raw_text = {"fields": {"tool_choice": "none", "skip_special_tokens": False}, "tools_in_prompt": True}
    for outcome in rollouts():
        counters = outcome["counters"]
        assert (outcome["turns"], outcome["stop_reason"]) == (3, "max_turns")
        assert (counters["tool_calls_executed_ok"], counters["tool_parse_errors"]) == (3, 0)
        assert outcome["provenance"]["model"]["raw_text"] == raw_text


@pytest.mark.parametrize("family", [FAMILIES["deepseekv3"]], ids=["deepseekv3"])
def test_a_template_that_lists_no_tools_is_said_before_the_run(run_family, family):
    result = run_family(family, "--parser", family.parser)
    assert "does not show the tools to the model" in result.stderr


@pytest.mark.parametrize("family", [FAMILIES["qwen3"]], ids=["qwen3"])
def test_a_run_without_a_parser_says_which_flag_reads_the_calls(run_family, rollouts, family):
    result = run_family(family)
    assert result.returncode == 1
    assert all("--parser NAME" in outcome["failure"]["message"] for outcome in rollouts())
