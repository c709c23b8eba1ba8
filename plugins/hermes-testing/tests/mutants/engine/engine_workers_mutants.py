"""Engines with workers and one broken behaviour; `caught_by` names the tests that must fail."""

from __future__ import annotations

from engine_suites import BrokenWorkers


class TestDesks(BrokenWorkers):
    pass


class TestLosesAll(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
        }
    )


class TestBlamesNobody(BrokenWorkers):
    caught_by = frozenset({"test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was"})


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


class TestKeepsRunning(BrokenWorkers):
    caught_by = frozenset({"test_the_rollouts_of_a_killed_caller_end"})


class TestFirstWorkerOnly(BrokenWorkers):
    caught_by = frozenset(
        {
            "test_a_lost_attempt_says_that_the_backend_is_to_blame_and_where_it_was",
            "test_a_lost_worker_costs_only_its_own_rollouts",
            "test_the_run_says_how_many_workers_it_has_lost",
        }
    )
