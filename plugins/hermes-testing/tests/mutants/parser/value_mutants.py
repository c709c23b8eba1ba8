"""Parsers whose attempts have no value, all or those of one status; `caught_by` as in `parser_mutants`."""

from __future__ import annotations

from dataclasses import replace

from reference.parser import TagParser
from reference.suites import Mutant

from hermes_core.contracts.parsing import AttemptStatus


class _ForgetsValues(TagParser):
    def judge(self, attempt, schemas):
        return replace(super().judge(attempt, schemas), value=None)


class TestAttemptsHaveNoValue(Mutant):
    parser_class = _ForgetsValues
    caught_by = frozenset(
        {
            "test_an_attempt_holds_its_arguments_as_text_and_value",
            "test_an_attempt_in_reasoning_holds_its_arguments_too",
            "test_an_attempt_to_call_an_unknown_tool_holds_its_arguments_too",
            "test_an_attempt_without_its_end_mark_holds_its_arguments_too",
            "test_only_lenient_mode_repairs",
            "test_only_lenient_mode_takes_an_extra_brace",
        }
    )


class _ForgetsValuesOf(TagParser):
    statuses = ()

    def parse(self, text, tools=None, mode="strict"):
        result = super().parse(text, tools, mode)
        attempts = [replace(one, value=None) if one.status in self.statuses else one for one in result.attempts]
        return replace(result, attempts=tuple(attempts))


class _ForgetsWhatItDoesNotKnow(_ForgetsValuesOf):
    statuses = (AttemptStatus.UNKNOWN_TOOL,)


class TestUnknownToolsHaveNoValue(Mutant):
    parser_class = _ForgetsWhatItDoesNotKnow
    caught_by = frozenset({"test_an_attempt_to_call_an_unknown_tool_holds_its_arguments_too"})


class _ForgetsDrafts(_ForgetsValuesOf):
    statuses = (AttemptStatus.IN_REASONING,)


class TestDraftsHaveNoValue(Mutant):
    parser_class = _ForgetsDrafts
    caught_by = frozenset({"test_an_attempt_in_reasoning_holds_its_arguments_too"})


class _ForgetsWhatIsOpen(_ForgetsValuesOf):
    statuses = (AttemptStatus.UNCLOSED,)


class TestUnclosedCallsHaveNoValue(Mutant):
    parser_class = _ForgetsWhatIsOpen
    caught_by = frozenset({"test_an_attempt_without_its_end_mark_holds_its_arguments_too"})


class _ForgetsRepairs(_ForgetsValuesOf):
    statuses = (AttemptStatus.REPAIRED,)


class TestRepairedCallsHaveNoValue(Mutant):
    parser_class = _ForgetsRepairs
    caught_by = frozenset({"test_only_lenient_mode_repairs", "test_only_lenient_mode_takes_an_extra_brace"})
