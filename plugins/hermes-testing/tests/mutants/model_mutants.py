"""Models with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from contextlib import asynccontextmanager

from broken_models import serving_lines

from hermes_core.contracts.model import ModelSettings
from hermes_testing import ModelSuite


class TestReference(ModelSuite):
    plugin, component = "broken_models", "lines"
    caught_by: frozenset[str] = frozenset()

    @asynccontextmanager
    async def serve(self):
        async with serving_lines() as url:
            yield ModelSettings(address=url)


class TestSaysItRecords(TestReference):
    component = "saysitrecords"
    caught_by = frozenset({"test_the_client_has_the_contract_s_methods"})


class TestHasNoCheck(TestReference):
    component = "hasnocheck"
    caught_by = frozenset(
        {
            "test_the_client_has_the_contract_s_methods",
            "test_a_server_that_answers_is_accepted",
            "test_nobody_at_the_address_is_an_error_of_the_model",
        }
    )


class TestConnectsAtOnce(TestReference):
    component = "connectsatonce"
    caught_by = frozenset(
        {"test_making_a_client_opens_no_connection", "test_nobody_at_the_address_is_an_error_of_the_model"}
    )


class TestIsOneClient(TestReference):
    component = "isoneclient"
    caught_by = frozenset({"test_two_clients_are_two"})


class TestIsNotPlain(TestReference):
    component = "isnotplain"
    caught_by = frozenset({"test_provenance_is_plain_and_keeps_what_it_says", "test_the_key_is_told_to_nobody"})


class TestForgetsWhatItSaid(TestReference):
    component = "forgetswhatitsaid"
    caught_by = frozenset({"test_provenance_is_plain_and_keeps_what_it_says"})


class TestRecordsTheKey(TestReference):
    component = "recordsthekey"
    caught_by = frozenset({"test_the_key_is_told_to_nobody"})


class TestRepeatsWhatTheServerSays(TestReference):
    component = "repeatswhattheserversays"
    caught_by = frozenset({"test_a_broken_server_is_an_error_of_the_model"})


class TestIsCheckedOnce(TestReference):
    component = "ischeckedonce"
    caught_by = frozenset({"test_a_server_that_answers_is_accepted"})


class TestSaysNoEnd(TestReference):
    component = "saysnoend"
    caught_by = frozenset({"test_a_reply_is_a_turn"})


class TestAppendsItsReply(TestReference):
    component = "appendsitsreply"
    caught_by = frozenset({"test_the_conversation_is_left_as_it_was"})


class TestChokesOnALimit(TestReference):
    component = "chokesonalimit"
    caught_by = frozenset({"test_a_rollout_runs"})


class TestAnswersOneAtATime(TestReference):
    component = "answersoneatatime"
    caught_by = frozenset({"test_requests_at_the_same_time_are_all_answered"})


class TestSwallowsCancellation(TestReference):
    component = "swallowscancellation"
    caught_by = frozenset({"test_cancellation_is_passed_on_and_leaves_the_client_usable"})


class TestLetsOtherErrorsOut(TestReference):
    component = "letsothererrorsout"
    caught_by = frozenset({"test_nobody_at_the_address_is_an_error_of_the_model"})


class TestLetsReadingErrorsOut(TestReference):
    component = "letsreadingerrorsout"
    caught_by = frozenset({"test_a_broken_server_is_an_error_of_the_model"})


class TestClosesOnce(TestReference):
    component = "closesonce"
    caught_by = frozenset({"test_closing_twice_is_fine"})


class TestHoldsTheLoop(TestReference):
    component = "holdstheloop"
    caught_by = frozenset({"test_the_event_loop_keeps_ticking"})
