"""Edits of history under every chat template that TRL carries and that takes tool messages."""

from __future__ import annotations

import copy

import pytest
from edited_rollout import EditedRollout, new_call, result_of
from small_tokenizers import stops_of, trl_templates, trl_tokenizer

# They take no tool messages, do not list tools, or end a turn by a token that they write nowhere.
_LACKS = ("cohere", "gemma", "gemma3", "llava", "phi3", "deepseek", "gptoss")
NAMES = [
    name
    for name in sorted(trl_templates())
    if not name.endswith("_training") and (not name.startswith(_LACKS) or name.startswith("gemma4"))
]
pytestmark = pytest.mark.skipif(not NAMES, reason="the distribution trl is not installed")


@pytest.mark.parametrize("tells", [True, False], ids=["told", "untold"])
@pytest.mark.parametrize("content", ["", None], ids=["empty", "none"])
@pytest.mark.parametrize("name", NAMES)
async def test_only_an_edit_starts_a_branch_which_matches_the_template(name, content, tells):
    rollout = EditedRollout(trl_tokenizer(name), tells=tells, stops=stops_of(name), allow_branches=True)
    rollout.messages = [{"role": "user", "content": "Look around."}]
    call = {**new_call(1, "ls -l"), "id": "abcdef123"}  # what some templates insist on
    for answer, following in (
        ({"role": "assistant", "content": content, "tool_calls": [call]}, result_of("abcdef123", "notes.txt")),
        ({"role": "assistant", "content": "There are notes."}, {"role": "user", "content": "Read them."}),
        ({"role": "assistant", "content": "It is 42."}, {"role": "user", "content": "Why?"}),
    ):
        if rollout.rule.reasoning.is_opened_by(rollout.rule.opening_text(rollout.messages)):
            answer["reasoning_content"] = "I have to look."
        await rollout.turn(answer)
        rollout.messages += copy.deepcopy([answer, following])
    assert rollout.reasons() == [""]
    assert rollout.session.exactness().is_exact
    before = rollout.written
    rollout.messages[1]["tool_calls"][0]["function"]["arguments"] = '{"command": "***", "times": 1.0}'
    await rollout.sample(f"Because.{stops_of(name)[0]}")
    assert rollout.sent == rollout.written
    edited = rollout.written[: len(before)] != before  # some templates leave calls out
    reason = "history_edited: turn 0, tool_calls of message 1 (assistant)"
    assert rollout.reasons() == ["", *[reason] * edited]
    assert rollout.session.exactness().is_exact
    assert rollout.check().is_exact


@pytest.mark.skipif("glm4moe" not in NAMES, reason="the distribution trl is not installed")
@pytest.mark.parametrize("tells", [True, False], ids=["told", "untold"])
async def test_an_edit_after_a_stop_token_that_must_be_replaced_is_reported_as_an_edit(tells):
    rollout = EditedRollout(trl_tokenizer("glm4moe"), tells=tells, stops=stops_of("glm4moe"))
    rollout.messages = [{"role": "user", "content": "Look around."}]
    for text in ("I look.", "So."):
        await rollout.sample(f"{text}<|user|>")
        rollout.messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    rollout.messages[2:] = [result_of("abcdef123", "notes.txt")]
    await rollout.sample("Well.<|user|>")
    assert rollout.reasons() == ["", "history_edited: turn 1, role of message 2 (user)"]
    assert rollout.session.exactness().is_exact
    assert rollout.check().is_exact
