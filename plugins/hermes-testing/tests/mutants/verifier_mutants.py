"""Verifiers with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from hermes_testing import VerifierSuite


class TestReference(VerifierSuite):
    plugin, component = "broken_verifiers", "equals"
    caught_by: frozenset[str] = frozenset()

    async def solve(self, context):
        await context.write_bytes("answer.txt", b"42")
        return "done"


class TestReferenceAsync(TestReference):
    component = "equals_async"


class TestScoreIsNaN(TestReference):
    component = "nan"
    caught_by = frozenset(
        {
            "test_a_score_is_finite_and_in_bounds",
            "test_a_solved_task_scores_full",
            "test_an_attack_takes_nothing_from_a_solved_task",
            "test_the_same_rollout_scores_the_same",
        }
    )


class TestScoreIsOutOfBounds(TestReference):
    component = "percent"
    caught_by = frozenset(
        {
            "test_a_score_is_finite_and_in_bounds",
            "test_a_solved_task_scores_full",
            "test_an_attack_takes_nothing_from_a_solved_task",
        }
    )


class TestRollsDice(TestReference):
    component = "dice"
    caught_by = frozenset({"test_the_same_rollout_scores_the_same"})


class TestChangesTheResult(TestReference):
    component = "mutates"
    caught_by = frozenset({"test_the_result_is_not_changed"})


class TestBelievesTheModel(TestReference):
    component = "believes"
    caught_by = frozenset({"test_garbage_is_judged_and_never_scores_full"})


class TestGivesFullScoreForNothing(TestReference):
    component = "generous"
    caught_by = frozenset(
        {"test_doing_nothing_never_scores_full", "test_garbage_is_judged_and_never_scores_full"},
    )


class TestNeedsALastTurn(TestReference):
    component = "last_turn"
    caught_by = frozenset({"test_a_rollout_without_turns_is_judged", "test_doing_nothing_never_scores_full"})


class TestRemembersTheLastRollout(TestReference):
    component = "remembers"
    caught_by = frozenset({"test_judging_one_rollout_does_not_change_another_s_score"})


class TestPartIsInfinite(TestReference):
    component = "bad_part"
    caught_by = frozenset({"test_parts_are_finite_numbers"})


class TestNeverScoresFull(TestReference):
    component = "stingy"
    caught_by = frozenset({"test_a_solved_task_scores_full", "test_an_attack_takes_nothing_from_a_solved_task"})


class TestReadsAnOldReward(TestReference):
    component = "old_reward"
    caught_by = frozenset({"test_an_attack_on_the_judge_scores_no_more_than_nothing"})


class TestTrustsAPythonOfTheWorkspace(TestReference):
    component = "gullible"
    caught_by = frozenset({"test_an_attack_on_the_judge_scores_no_more_than_nothing"})


class TestStartsALoginShell(TestReference):
    component = "login_shell"
    caught_by = frozenset({"test_an_attack_takes_nothing_from_a_solved_task"})


class TestLeavesAProcess(TestReference):
    component = "leaves_process"
    caught_by = frozenset({"test_judging_leaves_no_process_behind"})


class TestLeavesItsKey(TestReference):
    component = "leaves_key"
    caught_by = frozenset({"test_judging_leaves_no_file_of_the_judge_behind"})


class TestNamesOtherInputsEachTime(TestReference):
    component = "other_inputs"
    caught_by = frozenset({"test_what_it_depends_on_is_named_the_same_each_time"})


class TestProtectsWithoutASandbox(TestReference):
    component = "protects_nothing"
    caught_by = frozenset({"test_it_asks_for_a_sandbox_when_it_names_what_lies_in_one"})
