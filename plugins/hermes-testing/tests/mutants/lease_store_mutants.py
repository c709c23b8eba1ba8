"""Lease stores with one behaviour changed; `caught_by` names the tests that must fail, all others must pass."""

from __future__ import annotations

from hermes_testing import LeaseStoreSuite

KILLED = frozenset(
    {
        "test_an_amended_handle_is_the_one_that_is_reclaimed",
        "test_secrets_of_the_options_are_not_written",
        "test_the_living_keep_theirs_beside_the_dead",
        "test_two_that_collect_at_once_reclaim_each_sandbox_once",
        "test_what_a_killed_process_leased_is_collected",
        "test_what_cannot_be_reclaimed_keeps_its_lease",
    }
)
"""They collect what a killed process has left."""


class TestReference(LeaseStoreSuite):
    plugin, component = "broken_lease_stores", "reference"
    caught_by: frozenset[str] = frozenset()

    def options_at(self, folder):
        return {"directory": str(folder)}


class TestHoldsNothing(TestReference):
    component = "holdsnothing"
    caught_by = frozenset({"test_a_lease_is_held_until_it_is_given_up", "test_what_lives_is_never_collected"})


class TestHoldsWhatOthersHold(TestReference):
    component = "holdswhatothershold"
    caught_by = frozenset({"test_a_lease_is_held_until_it_is_given_up"})


class TestGivesUpOnlyWhatIsThere(TestReference):
    component = "givesuponlywhatisthere"
    caught_by = frozenset({"test_giving_up_what_is_not_there_is_fine"})


class TestNeedsItsDirectory(TestReference):
    component = "needsitsdirectory"
    caught_by = frozenset({"test_nothing_is_there_at_first"})


class TestCollectsTheLiving(TestReference):
    component = "collectstheliving"
    caught_by = frozenset({"test_what_lives_is_never_collected", "test_the_living_keep_theirs_beside_the_dead"})


class TestCollectsNothing(TestReference):
    component = "collectsnothing"
    caught_by = KILLED


class TestWritesLate(TestReference):
    component = "writeslate"
    caught_by = KILLED - {"test_an_amended_handle_is_the_one_that_is_reclaimed"}  # amending writes it


class TestKeepsWhatItCollected(TestReference):
    component = "keepswhatitcollected"
    caught_by = frozenset({"test_what_a_killed_process_leased_is_collected"})


class TestCollectsWithoutClaims(TestReference):
    component = "collectswithoutclaims"
    caught_by = frozenset({"test_two_that_collect_at_once_reclaim_each_sandbox_once"})


class TestGivesUpWhatIsLeft(TestReference):
    component = "givesupwhatisleft"
    caught_by = frozenset({"test_what_cannot_be_reclaimed_keeps_its_lease"})


class TestKeepsWhatWasGivenUp(TestReference):
    component = "keepswhatwasgivenup"
    caught_by = frozenset({"test_what_was_given_up_is_not_collected", "test_amending_what_is_not_held_writes_nothing"})


class TestAmendsNothing(TestReference):
    component = "amendsnothing"
    caught_by = frozenset({"test_an_amended_handle_is_the_one_that_is_reclaimed"})


class TestAmendsAnything(TestReference):
    component = "amendsanything"
    caught_by = frozenset({"test_amending_what_is_not_held_writes_nothing"})


class TestTakesAllTheSame(TestReference):
    component = "takesallthesame"
    caught_by = frozenset({"test_taking_that_is_cancelled_leaves_no_lease"})


class TestWritesSecrets(TestReference):
    component = "writessecrets"
    caught_by = frozenset({"test_secrets_of_the_options_are_not_written"})
