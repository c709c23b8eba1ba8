"""Engines that refuse, fail and end in another way; `caught_by` names the tests that must fail."""

from __future__ import annotations

from engine_suites import Broken, Leaky


class TestLenient(Broken):
    caught_by = frozenset({"test_an_option_that_it_does_not_have_is_a_typed_error"})


class TestOpensLater(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestChecksNoModel(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestRaisesItsOwn(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestClosesOnlyWhatIsOpen(Leaky):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestRefusesNothing(Broken):
    caught_by = frozenset({"test_a_task_that_cannot_run_there_stops_no_other"})


class TestRefusesAll(Broken):
    caught_by = frozenset({"test_a_task_that_cannot_run_there_stops_no_other"})


class TestRefusesSetUps(Broken):
    caught_by = frozenset({"test_tasks_that_can_run_are_not_refused"})


class TestOneFailureEndsAll(Broken):
    caught_by = frozenset({"test_a_rollout_that_fails_ends_no_other"})


class TestSwallowsFatalErrors(Broken):
    caught_by = frozenset({"test_a_fatal_error_stops_the_run_as_itself"})


class TestForgetsTheKey(Broken):
    caught_by = frozenset({"test_the_server_s_key_is_handed_on_and_written_nowhere"})


class TestWritesTheKey(Leaky):
    caught_by = frozenset(
        {"test_outcomes_are_those_of_the_local_engine", "test_the_server_s_key_is_handed_on_and_written_nowhere"}
    )


class TestCancelsLater(Leaky):
    caught_by = frozenset({"test_a_cancelled_rollout_ends_alone"})


class TestClosesLater(Leaky):
    caught_by = frozenset(
        {"test_a_cancelled_rollout_ends_alone", "test_a_cancelled_run_has_ended_every_rollout_where_it_ran"}
    )


class TestCancelsAll(Broken):
    caught_by = frozenset({"test_a_cancelled_rollout_ends_alone"})


class TestKeepsPlaces(Broken):
    caught_by = frozenset({"test_a_cancelled_rollout_gives_its_place_back"})


class TestClosesNothing(Leaky):
    caught_by = frozenset({"test_closing_ends_rollouts_that_still_run"})
