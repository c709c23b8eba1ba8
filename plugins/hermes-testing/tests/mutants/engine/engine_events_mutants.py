"""Engines that report events of rollouts differently; `caught_by` names the tests that must fail."""

from __future__ import annotations

from engine_suites import Broken


class TestTellsNothing(Broken):
    caught_by = frozenset(
        {
            "test_a_failed_attempt_is_finished_for_plugins_too",
            "test_events_come_on_the_run_s_own_thread",
            "test_events_come_while_a_rollout_runs",
            "test_events_say_what_is_recorded",
            "test_every_event_reaches_the_run_s_plugins_once_and_in_order",
        }
    )


class TestTellsTwice(Broken):
    caught_by = frozenset(
        {
            "test_a_failed_attempt_is_finished_for_plugins_too",
            "test_events_come_while_a_rollout_runs",
            "test_events_say_what_is_recorded",
            "test_every_event_reaches_the_run_s_plugins_once_and_in_order",
        }
    )


class TestTellsAtTheEnd(Broken):
    caught_by = frozenset({"test_events_come_while_a_rollout_runs"})


class TestTellsBackwards(Broken):
    caught_by = frozenset(
        {"test_events_come_while_a_rollout_runs", "test_every_event_reaches_the_run_s_plugins_once_and_in_order"}
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
