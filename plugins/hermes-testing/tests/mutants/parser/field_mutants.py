"""Parsers of fields that hold plain text, with one behaviour changed; `caught_by` as in `parser_mutants`."""

from __future__ import annotations

from dataclasses import replace

from reference.parser import CLOSE, NOT_CALLS, FieldParser
from reference.suites import FieldMutant, FieldSuite

from hermes_core.contracts.parsing import AttemptStatus


class TestFieldReference(FieldSuite):
    caught_by: frozenset[str] = frozenset()


class _GuessesTypes(FieldParser):
    def types(self, schema):
        return super().types(schema) or set(self.ORDER)


class TestGuessesTypes(FieldMutant):
    parser_class = _GuessesTypes
    caught_by = frozenset({"test_a_value_that_no_schema_declares_is_what_the_text_says"})


class _NullsText(FieldParser):
    def value(self, text, types, notes):
        return None if text == "null" else super().value(text, types, notes)


class TestTakesTheTextNullForNull(FieldMutant):
    parser_class = _NullsText
    caught_by = frozenset(
        {"test_a_value_has_the_type_its_schema_declares", "test_what_is_rendered_reads_back_with_its_tools"}
    )


class _Strips(FieldParser):
    def value(self, text, types, notes):
        return super().value(text.strip(), types, notes)


class TestStripsText(FieldMutant):
    parser_class = _Strips
    caught_by = frozenset(
        {
            "test_a_tricky_text_arrives_unchanged",
            "test_a_value_has_the_type_its_schema_declares",
            "test_a_very_long_argument_arrives",
            "test_what_is_rendered_reads_back_with_its_tools",
        }
    )


class _FalseByDefault(FieldParser):
    def misfit(self, text, types, notes):
        text = super().misfit(text, types, notes)
        return False if "boolean" in types else text


class TestTakesAnythingForFalse(FieldMutant):
    parser_class = _FalseByDefault
    caught_by = frozenset({"test_a_value_that_does_not_fit_its_schema_stays_as_it_is"})


class _NoNotes(FieldParser):
    def misfit(self, text, types, notes):
        return text


class TestSaysNothingOfMisfits(FieldMutant):
    parser_class = _NoNotes
    caught_by = frozenset({"test_a_value_that_does_not_fit_its_schema_stays_as_it_is"})


class _DropsTheCutField(FieldParser):
    def attempt(self, text, start, schemas, mode):
        attempt = super().attempt(text, start, schemas, mode)
        if attempt is None or attempt.status not in NOT_CALLS or "</arg>" not in attempt.raw:
            return attempt
        whole = attempt.raw[: attempt.raw.rindex("</arg>") + len("</arg>")] + CLOSE
        read = super().attempt(text[:start] + whole, start, schemas, mode)
        made = replace(read, raw=attempt.raw, end=attempt.end, status=AttemptStatus.UNCLOSED, reason="cut")
        return attempt if read.status in NOT_CALLS else made


class TestCallsWithoutTheFieldThatIsCut(FieldMutant):
    parser_class = _DropsTheCutField
    caught_by = frozenset({"test_no_truncation_raises_or_invents"})
