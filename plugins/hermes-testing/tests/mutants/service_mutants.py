"""Services with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from hermes_testing import ServiceSuite


class TestReference(ServiceSuite):
    plugin, component = "broken_services", "notes"
    caught_by: frozenset[str] = frozenset()

    async def use(self, view):
        view.add()

    async def holds(self, view):
        return view.has()


class TestLacksAnEnd(TestReference):
    component = "lacksanend"
    caught_by = frozenset({"test_it_has_the_contract_s_methods"})


class TestIsSharedByRuntimes(TestReference):
    component = "issharedbyruntimes"
    caught_by = frozenset({"test_two_runtimes_have_two"})


class TestStartsAtOnce(TestReference):
    component = "startsatonce"
    caught_by = frozenset({"test_asking_for_it_starts_nothing"})


class TestForgets(TestReference):
    component = "forgets"
    caught_by = frozenset(
        {
            "test_what_a_rollout_leaves_is_there",
            "test_the_end_of_another_rollout_changes_nothing",
            "test_the_end_of_another_sandbox_changes_nothing",
        }
    )


class TestTellsOthers(TestReference):
    component = "tellsothers"
    caught_by = frozenset({"test_another_rollout_does_not_see_it"})


class TestKeepsForEver(TestReference):
    component = "keepsforever"
    caught_by = frozenset({"test_it_goes_with_its_sandbox", "test_releasing_twice_is_fine"})


class TestLetsAllGo(TestReference):
    component = "letsallgo"
    caught_by = frozenset(
        {"test_the_end_of_another_rollout_changes_nothing", "test_the_end_of_another_sandbox_changes_nothing"}
    )


class TestForgetsTheSandbox(TestReference):
    component = "forgetsthesandbox"
    caught_by = frozenset({"test_the_end_of_another_sandbox_changes_nothing"})


class TestKnowsWhomItReleases(TestReference):
    component = "knowswhomitreleases"
    caught_by = frozenset(
        {
            "test_another_rollout_does_not_see_it",
            "test_asking_for_it_starts_nothing",
            "test_it_goes_with_its_sandbox",
            "test_releasing_twice_is_fine",
            "test_the_end_of_another_rollout_changes_nothing",
            "test_two_runtimes_have_two",
        }
    )


class TestLeavesTasks(TestReference):
    component = "leavestasks"
    caught_by = frozenset({"test_closing_leaves_no_task"})


class TestClosesOnce(TestReference):
    component = "closesonce"
    caught_by = frozenset({"test_closing_leaves_no_task"})
