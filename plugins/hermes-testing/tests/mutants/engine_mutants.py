"""Engines with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from typing import ClassVar

from hermes_testing import EngineSuite

_IN_PROCESS = {"workers": "rollouts are played in the run's own process"}


class Broken(EngineSuite):
    """An engine that plays in this process, but for one thing; the class after `Test` is the engine's."""

    plugin = "broken_engines"
    patience = 20.0
    lacks = _IN_PROCESS
    caught_by: frozenset[str] = frozenset()

    def __init_subclass__(cls, **options):
        cls.component = cls.__name__.removeprefix("Test")
        super().__init_subclass__(**options)


class BrokenWorkers(Broken):
    """One that plays in two other processes."""

    lacks: ClassVar = {}


class TestPassing(Broken):
    pass


class TestDesks(BrokenWorkers):
    pass


class TestPlaysTwice(Broken):
    caught_by = frozenset(
        {
            "test_a_failed_attempt_is_finished_for_plugins_too",
            "test_a_rollout_is_played_once",
            "test_a_run_that_was_cancelled_is_continued",
            "test_an_attempt_that_is_repeated_is_played_anew",
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
    caught_by = frozenset(
        {
            "test_a_run_that_was_cancelled_is_continued",
            "test_rollouts_that_end_in_another_order_keep_their_own_outcomes",
        }
    )


class TestMixesUp(Broken):
    caught_by = frozenset({"test_rollouts_that_end_in_another_order_keep_their_own_outcomes"})


class TestOneAtATime(Broken):
    caught_by = frozenset({"test_as_many_play_at_a_time_as_were_asked_for"})


class TestSmallCapacity(Broken):
    caught_by = frozenset({"test_as_many_play_at_a_time_as_were_asked_for"})


class TestImpatientCapacity(Broken):
    caught_by = frozenset({"test_capacity_is_known_when_it_is_open"})


class TestRemembersOutcomes(Broken):
    caught_by = frozenset(
        {"test_a_failed_attempt_is_finished_for_plugins_too", "test_an_attempt_that_is_repeated_is_played_anew"}
    )


class TestStripsProvenance(Broken):
    caught_by = frozenset({"test_the_record_names_the_engine"})


class TestNamesNoNodes(Broken):
    caught_by = frozenset({"test_the_record_names_the_engine"})


class TestOnePerProcess(Broken):
    caught_by = frozenset({"test_two_engines_play_side_by_side"})


class TestTellsNothing(Broken):
    caught_by = frozenset(
        {
            "test_a_failed_attempt_is_finished_for_plugins_too",
            "test_events_come_on_the_run_s_own_thread",
            "test_events_come_while_a_rollout_is_played",
            "test_events_say_what_is_recorded",
            "test_every_event_reaches_the_run_s_plugins_once_and_in_order",
        }
    )


class TestTellsTwice(Broken):
    caught_by = frozenset(
        {
            "test_a_failed_attempt_is_finished_for_plugins_too",
            "test_events_come_while_a_rollout_is_played",
            "test_events_say_what_is_recorded",
            "test_every_event_reaches_the_run_s_plugins_once_and_in_order",
        }
    )


class TestTellsAtTheEnd(Broken):
    caught_by = frozenset({"test_events_come_while_a_rollout_is_played"})


class TestTellsBackwards(Broken):
    caught_by = frozenset(
        {"test_events_come_while_a_rollout_is_played", "test_every_event_reaches_the_run_s_plugins_once_and_in_order"}
    )


class TestTellsNoReward(Broken):
    caught_by = frozenset({"test_events_say_what_is_recorded"})


class TestTellsOnlyTheFirstEnd(Broken):
    caught_by = frozenset({"test_a_failed_attempt_is_finished_for_plugins_too"})


class TestTellsFromAThread(Broken):
    caught_by = frozenset({"test_events_come_on_the_run_s_own_thread"})


class TestCountsNoTurns(Broken):
    caught_by = frozenset({"test_every_turn_is_told_when_the_model_has_answered"})


class TestCountsTurnsFromAThread(Broken):
    caught_by = frozenset({"test_every_turn_is_told_when_the_model_has_answered"})


class TestCountsTurnsAtTheEnd(Broken):
    caught_by = frozenset({"test_every_turn_is_told_when_the_model_has_answered"})


class TestLenient(Broken):
    caught_by = frozenset({"test_an_option_that_it_does_not_have_is_a_typed_error"})


class TestOpensLater(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestChecksNoModel(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestRaisesItsOwn(Broken):
    caught_by = frozenset({"test_what_the_run_cannot_begin_with_is_said_as_it_opens"})


class TestClosesOnlyWhatIsOpen(Broken):
    caught_by = frozenset(
        {"test_a_run_that_cannot_begin_records_nothing", "test_what_the_run_cannot_begin_with_is_said_as_it_opens"}
    )


class TestRefusesNothing(Broken):
    caught_by = frozenset({"test_a_task_that_cannot_be_played_there_stops_no_other"})


class TestRefusesAll(Broken):
    caught_by = frozenset({"test_a_task_that_cannot_be_played_there_stops_no_other"})


class TestRefusesSetUps(Broken):
    caught_by = frozenset({"test_tasks_that_can_be_played_are_refused_by_nobody"})


class TestOneFailureEndsAll(Broken):
    caught_by = frozenset({"test_a_rollout_that_fails_ends_no_other"})


class TestSwallowsFatalErrors(Broken):
    caught_by = frozenset({"test_a_fatal_error_stops_the_run_as_itself"})


class TestForgetsTheKey(Broken):
    caught_by = frozenset({"test_the_server_s_key_is_handed_on_and_written_nowhere"})


class TestWritesTheKey(Broken):
    caught_by = frozenset({"test_the_server_s_key_is_handed_on_and_written_nowhere"})


class TestCancelsLater(Broken):
    caught_by = frozenset(
        {"test_a_cancelled_rollout_ends_alone", "test_a_cancelled_run_has_ended_every_rollout_where_it_was_played"}
    )


class TestCancelsAll(Broken):
    caught_by = frozenset({"test_a_cancelled_rollout_ends_alone"})


class TestKeepsPlaces(Broken):
    caught_by = frozenset({"test_a_cancelled_rollout_gives_its_place_back"})


class TestClosesNothing(Broken):
    caught_by = frozenset({"test_closing_ends_what_is_still_played"})


class TestLosesAll(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
        }
    )


class TestBlamesNobody(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
        }
    )


class TestSaysNotWhere(BrokenWorkers):
    caught_by = frozenset({"test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was"})


class TestCountsNoLosses(BrokenWorkers):
    caught_by = frozenset({"test_the_run_says_how_many_workers_it_has_lost"})


class TestNoticesNothing(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
            "test_the_run_says_how_many_workers_it_has_lost",
        }
    )


class TestPlaysOn(BrokenWorkers):
    caught_by = frozenset({"test_what_a_killed_caller_had_played_ends"})


class TestFirstWorkerOnly(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
            "test_the_run_says_how_many_workers_it_has_lost",
        }
    )
