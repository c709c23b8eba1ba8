"""Engines that change the outcomes of rollouts; `caught_by` names the tests that must fail."""

from __future__ import annotations

from engine_suites import Broken, Leaky


class TestPassing(Broken):
    pass


class TestRunsTwice(Broken):
    caught_by = frozenset(
        {
            "test_a_rollout_runs_once",
            "test_a_run_that_was_cancelled_is_continued",
            "test_a_run_whose_caller_was_killed_is_continued",
            "test_an_attempt_that_is_repeated_runs_anew",
            "test_events_say_what_is_recorded",
            "test_every_event_reaches_the_run_s_plugins_once_and_in_order",
            "test_every_turn_is_told_when_the_model_has_answered",
        }
    )


class TestLosesCounts(Broken):
    caught_by = frozenset(
        {"test_a_run_adds_up_to_what_it_does_on_the_local_engine", "test_outcomes_are_those_of_the_local_engine"}
    )


class TestMendsTexts(Broken):
    caught_by = frozenset({"test_outcomes_are_those_of_the_local_engine"})


class TestRoundsParts(Broken):
    caught_by = frozenset({"test_events_say_what_is_recorded", "test_outcomes_are_those_of_the_local_engine"})


class TestDrawsItsOwnSeeds(Broken):
    caught_by = frozenset({"test_outcomes_are_those_of_the_local_engine", "test_seeds_and_ids_are_those_of_the_run"})


class TestForgetsTheSandbox(Broken):
    caught_by = frozenset({"test_outcomes_are_those_of_the_local_engine"})


class TestHeadOfLine(Broken):
    caught_by = frozenset({"test_rollouts_that_end_in_another_order_keep_their_own_outcomes"})


class TestMixesUp(Broken):
    caught_by = frozenset(
        {
            "test_outcomes_are_those_of_the_local_engine",
            "test_rollouts_that_end_in_another_order_keep_their_own_outcomes",
        }
    )


class TestThreeAtATime(Leaky):
    caught_by = frozenset(
        {"test_a_cancelled_rollout_gives_its_place_back", "test_as_many_run_at_a_time_as_were_asked_for"}
    )


class TestSmallCapacity(Leaky):
    caught_by = frozenset({"test_as_many_run_at_a_time_as_were_asked_for"})


class TestFractionalCapacity(Broken):
    caught_by = frozenset({"test_capacity_is_known_when_it_is_open"})


class TestRemembersOutcomes(Broken):
    caught_by = frozenset(
        {"test_a_failed_attempt_is_finished_for_plugins_too", "test_an_attempt_that_is_repeated_runs_anew"}
    )


class TestStripsProvenance(Broken):
    caught_by = frozenset({"test_the_record_names_the_engine"})


class TestNamesNoNodes(Broken):
    caught_by = frozenset({"test_the_record_names_the_engine"})


class TestOnePerProcess(Broken):
    caught_by = frozenset({"test_two_engines_run_side_by_side"})
