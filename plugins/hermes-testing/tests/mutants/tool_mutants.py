"""Tools with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from typing import ClassVar

from hermes_testing import ToolSuite


class TestReference(ToolSuite):
    plugin, component = "broken_tools", "count"
    arguments: ClassVar = {"path": "data.bin"}
    failing = ({"path": "absent"},)
    caught_by: frozenset[str] = frozenset()

    async def prepare(self, context):
        await context.write_bytes("data.bin", b"12345")


class TestReferenceAsync(TestReference):
    component = "count_async"


class TestReturnsABareText(TestReference):
    component = "bare_text"
    caught_by = frozenset(
        {
            "test_it_answers_with_text",
            "test_the_event_loop_keeps_ticking",
        }
    )


class TestAnswersWithADictionary(TestReference):
    component = "dictionary"
    caught_by = frozenset({"test_it_answers_with_text"})


class TestRaisesWhereTheModelShouldRead(TestReference):
    component = "raises"
    caught_by = frozenset({"test_failures_are_answered_too"})


class TestKeepsStateInTheTool(TestReference):
    component = "counts_calls"
    caught_by = frozenset({"test_rollouts_do_not_share_state"})


class TestSwallowsCancellation(TestReference):
    component = "swallows"
    caught_by = frozenset({"test_cancellation_is_passed_on"})


class TestBlocksTheLoop(TestReference):
    component = "blocks"
    caught_by = frozenset({"test_the_event_loop_keeps_ticking"})


class TestRequiresWhatItDoesNotDeclare(TestReference):
    component = "undeclared"
    arguments: ClassVar = {"path": "data.bin", "file": "x"}
    failing = ()
    caught_by = frozenset({"test_the_schema_is_a_json_schema"})


class TestSaysNothingAboutItself(TestReference):
    component = "silent"
    caught_by = frozenset({"test_the_model_is_told_what_it_does"})


class TestSchemaRefersToNothing(TestReference):
    component = "dangling_reference"
    caught_by = frozenset(
        {
            "test_arguments_of_the_wrong_type_are_answered",
            "test_failures_are_answered_too",
            "test_it_answers_with_text",
            "test_the_event_loop_keeps_ticking",
            "test_the_example_s_arguments_are_accepted",
        }
    )
