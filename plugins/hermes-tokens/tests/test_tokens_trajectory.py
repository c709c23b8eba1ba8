"""The trajectory: every sampled token is in the samples with loss exactly once, in every tree of branches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_core.contracts.tokens import IGNORED, WeightSpan
from hermes_tokens.exactness import Exchange, check_exactness, report
from hermes_tokens.generation import Generated, TokenIds
from hermes_tokens.trajectory import ROOT, Trajectory


def generation_of(*ids: int, version: str = "") -> Generated:
    spans = (WeightSpan(version=version, start=0, end=len(ids)),) if version else ()
    return Generated(
        ids=ids, logprobs=tuple(-token / 100 for token in ids), finish_reason="stop", weight_versions=spans
    )


def lines(trajectory: Trajectory) -> list[dict]:
    return [sample.to_json() for sample in trajectory.samples()]


def test_a_conversation_that_only_grows_is_one_sample():
    trajectory = Trajectory()
    trajectory.add_context("user", [1, 2])
    trajectory.add_sampled(generation_of(3, 4))
    trajectory.add_context("tool", [5])
    trajectory.add_sampled(generation_of(6))
    (sample,) = trajectory.samples()
    assert sample.tokens == [1, 2, 3, 4, 5, 6]
    assert sample.masks == [IGNORED, IGNORED, 3, 4, IGNORED, 6]
    assert sample.logprobs == [None, None, -0.03, -0.04, None, -0.06]
    assert sample.reason == ""
    assert report(trajectory, [sample]).is_exact


def test_context_after_the_last_sampled_token_is_not_sent():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2))
    trajectory.add_context("tool", [3, 4])
    (sample,) = trajectory.samples()
    assert sample.tokens == [1, 2]


def test_a_trajectory_without_sampled_tokens_has_no_sample():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    assert trajectory.samples() == []
    assert report(trajectory, []).to_json()["sampled_trained_share"] is None


def test_a_branch_trains_each_sampled_token_once_and_says_why_it_began():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2))
    after_first = trajectory.head
    trajectory.add_context("tool", [3])
    trajectory.add_sampled(generation_of(4))
    trajectory.rewind(after_first, "history_edited", "turn 1, content")
    trajectory.add_context("user", [9])
    trajectory.add_sampled(generation_of(5))
    first, second = trajectory.samples()
    assert (first.tokens, first.masks) == ([1, 2, 3, 4], [IGNORED, 2, IGNORED, 4])
    assert (second.tokens, second.masks) == ([1, 2, 9, 5], [IGNORED, IGNORED, IGNORED, 5])
    assert (first.reason, second.reason) == ("", "history_edited: turn 1, content")
    assert (first.branch, second.branch) == (0, 1)
    assert second.logprobs[1] == -0.02  # known, though without loss here


def test_going_back_over_context_alone_starts_no_branch():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2))
    after = trajectory.head
    trajectory.add_context("tool", [3])
    trajectory.rewind(after, "engine")
    trajectory.add_context("tool", [3])
    trajectory.add_sampled(generation_of(4))
    (sample,) = trajectory.samples()
    assert sample.tokens == [1, 2, 3, 4]
    assert not trajectory.breaks


def test_a_replaced_stop_token_keeps_its_loss_in_the_branch_that_ends_with_it():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2, 3, 99, version="v1"))
    trajectory.drop_last()
    trajectory.add_context("close", [50, 7])
    trajectory.add_sampled(generation_of(4, version="v2"))
    first, second = trajectory.samples()
    assert (first.tokens, first.masks) == ([1, 2, 3, 99], [IGNORED, 2, 3, 99])
    assert (second.tokens, second.masks) == ([1, 2, 3, 50, 7, 4], [IGNORED] * 5 + [4])
    assert second.reason == "junction"
    assert list(first.weight_versions) == [WeightSpan(version="v1", start=1, end=4)]
    assert list(second.weight_versions) == [
        WeightSpan(version="v1", start=1, end=3),
        WeightSpan(version="v2", start=5, end=6),
    ]
    assert report(trajectory, [first, second]).trained == 4


def test_dropping_the_only_token_of_a_turn_leaves_the_turn_in_its_own_branch():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(99))
    trajectory.drop_last()
    trajectory.add_context("close", [50])
    trajectory.add_sampled(generation_of(4))
    assert [sample.tokens for sample in trajectory.samples()] == [[1, 99], [1, 50, 4]]


def test_a_new_prompt_that_only_adds_starts_no_branch():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2))
    trajectory.rebase([("user", [1, 2, 3])], "template")
    trajectory.add_sampled(generation_of(4))
    (sample,) = trajectory.samples()
    assert sample.tokens == [1, 2, 3, 4]


def test_a_new_prompt_that_rewrites_starts_a_branch_where_it_differs():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(generation_of(2, 3))
    trajectory.rebase([("user", [1, 2]), ("user", [8])], "template")
    trajectory.add_sampled(generation_of(4))
    first, second = trajectory.samples()
    assert first.tokens == [1, 2, 3]
    assert second.tokens == [1, 2, 8, 4]
    assert (second.reason, dict(trajectory.breaks)) == ("template", {"template": 1})


def test_a_turn_that_goes_on_after_an_abort_counts_once():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(replace(generation_of(2), finish_reason="abort"))
    trajectory.add_sampled(generation_of(3), continues=True)
    found = report(trajectory, trajectory.samples())
    assert (found.turns, found.sampled, found.trained) == (1, 2, 2)


def test_a_missing_logprob_is_a_fault_that_names_turn_and_token():
    trajectory = Trajectory()
    trajectory.add_context("user", [1])
    trajectory.add_sampled(Generated(ids=(2, 3), logprobs=(-0.1, None), finish_reason="stop"))
    found = report(trajectory, trajectory.samples())
    assert found.faults == ("turn 0: sampled token 1 (id 3) has no logprob",)
    assert found.to_json()["logprob_coverage"] == 0.5


class TestTheCheck:
    """The check takes the other side's log, never the recorder's state."""

    def exchanges(self) -> list[Exchange]:
        return [
            Exchange(prompt_ids=[1], ids=[2, 3], logprobs=[-0.02, -0.03]),
            Exchange(prompt_ids=[1, 2, 3, 4], ids=[5], logprobs=[-0.05]),
        ]

    def sample(self, **changed) -> dict:
        whole = {
            "tokens": [1, 2, 3, 4, 5],
            "masks": [IGNORED, 2, 3, IGNORED, 5],
            "logprobs": [None, -0.02, -0.03, None, -0.05],
        }
        return {**whole, **changed}

    def test_exact_samples_pass(self):
        found = check_exactness(self.exchanges(), [self.sample()])
        assert found.is_exact
        assert (found.sampled, found.trained, found.continued, found.prefix_exact) == (3, 3, 1, 1)

    def test_a_token_without_loss_is_found(self):
        found = check_exactness(self.exchanges(), [self.sample(masks=[IGNORED, 2, IGNORED, IGNORED, 5])])
        assert found.faults == ("turn 0: sampled token 1 (id 3) has loss 0 times",)
        assert found.to_json()["sampled_trained_share"] == 2 / 3

    def test_a_token_trained_twice_is_found(self):
        found = check_exactness(self.exchanges(), [self.sample(), self.sample()])
        assert not found.is_exact
        assert "has loss 2 times" in found.faults[0]

    def test_a_token_that_was_never_sampled_is_found(self):
        found = check_exactness(self.exchanges(), [self.sample(masks=[IGNORED, 2, 3, 4, 5])])
        assert found.faults == ("sample 0: token 3 (id 4) has loss and was never sampled",)

    def test_an_encoded_again_token_is_found(self):
        found = check_exactness(
            self.exchanges(), [self.sample(tokens=[1, 2, 8, 4, 5], masks=[IGNORED, 2, 8, IGNORED, 5])]
        )
        assert not found.is_exact

    def test_a_changed_logprob_is_found(self):
        found = check_exactness(self.exchanges(), [self.sample(logprobs=[None, -0.02, -0.031, None, -0.05])])
        assert found.faults == ("turn 0: sampled token 1 has logprob -0.031, but -0.03 was sent",)

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"masks": [IGNORED, 2, 9, IGNORED, 5]}, "token 2 (id 3) has the mask 9"),
            ({"masks": [IGNORED, 2, 3, IGNORED]}, "4 masks"),
            ({"logprobs": [None, -0.02]}, "2 logprobs"),
            ({"tokens": [1, 2, 3.0, 4, 5]}, "whole numbers"),
            ({"tokens": None}, "must be lists"),
            ({"logprobs": [-0.5, -0.02, -0.03, None, -0.05]}, "token 0 (id 1) has no loss and the logprob -0.5"),
            ({"logprobs": [None, None, -0.03, None, -0.05]}, "has logprob None, but -0.02 was sent"),
        ],
    )
    def test_a_sample_with_a_value_that_was_never_sent_is_found(self, changed, words):
        found = check_exactness(self.exchanges(), [self.sample(**changed)])
        assert not found.is_exact
        assert words in "; ".join(found.faults)

    def test_a_sample_that_trains_nothing_at_its_end_is_found(self):
        longer = self.sample(
            tokens=[1, 2, 3, 4, 5, 6],
            masks=[IGNORED, 2, 3, IGNORED, 5, IGNORED],
            logprobs=[None, -0.02, -0.03, None, -0.05, None],
        )
        assert "its last token has no loss" in check_exactness(self.exchanges(), [longer]).faults[0]

    def test_a_logprob_without_loss_is_right_where_another_sample_has_the_loss(self):
        branch = self.sample(tokens=[1, 2, 7], masks=[IGNORED, IGNORED, 7], logprobs=[None, -0.02, -0.07])
        exchanges = [*self.exchanges(), Exchange(prompt_ids=[1, 2], ids=[7], logprobs=[-0.07])]
        assert check_exactness(exchanges, [self.sample(), branch]).faults == ()

    def test_one_logprob_does_not_stand_for_two_of_the_same_token(self):
        twice = [Exchange(prompt_ids=[1], ids=[2], logprobs=[value]) for value in (-0.1, -0.1)]
        samples = [self.sample(tokens=[1, 2], masks=[IGNORED, 2], logprobs=[None, value]) for value in (-0.1, -0.2)]
        assert check_exactness(twice, samples).faults == (
            "turn 1: sampled token 0 has logprob -0.2, but -0.1 was sent",
        )

    def test_two_that_sampled_the_same_are_exact(self):
        twice = [Exchange(prompt_ids=[1], ids=[2], logprobs=[value]) for value in (-0.1, -0.2)]
        samples = [self.sample(tokens=[1, 2], masks=[IGNORED, 2], logprobs=[None, value]) for value in (-0.2, -0.1)]
        assert check_exactness(twice, samples).faults == ()

    def test_unread_tokens_of_an_aborted_request_are_not_a_fault(self):
        aborted = Exchange(prompt_ids=[1, 2, 3, 4, 5, 6], ids=[7], logprobs=[-0.5], aborted=True)
        assert check_exactness([*self.exchanges(), aborted], [self.sample()]).is_exact

    def test_what_an_aborted_request_brought_is_due_its_loss(self):
        first, second = self.exchanges()
        found = check_exactness([first, replace(second, aborted=True)], [self.sample()])
        assert (found.sampled, found.is_exact) == (3, True)

    def test_a_rewritten_prompt_is_counted(self):
        exchanges = [self.exchanges()[0], Exchange(prompt_ids=[1, 7], ids=[5], logprobs=[-0.05])]
        samples = [
            self.sample(tokens=[1, 2, 3], masks=[IGNORED, 2, 3], logprobs=[None, -0.02, -0.03]),
            self.sample(tokens=[1, 7, 5], masks=[IGNORED, IGNORED, 5], logprobs=[None, None, -0.05]),
        ]
        found = check_exactness(exchanges, samples)
        assert (found.trained, found.sampled) == (3, 3)
        assert found.to_json()["prefix_exact_share"] == 0.0


class AnyRollout(RuleBasedStateMachine):
    """After any operations on a trajectory, the server's log agrees with the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.trajectory = Trajectory()
        self.log: list[Exchange] = []
        self.next_id = 0

    def fresh(self, count: int) -> list[int]:
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    @rule(count=st.integers(0, 3))
    def add_context(self, count):
        self.trajectory.add_context("user", self.fresh(count))

    @rule(count=st.integers(0, 3), repeat=st.booleans())
    def sample(self, count, repeat):
        ids = [1, 2, 3][:count] if repeat else self.fresh(count)
        prompt = list(self.trajectory.prompt.ids)
        reply = generation_of(*ids)
        self.log.append(Exchange(prompt_ids=prompt, ids=ids, logprobs=reply.logprobs))
        self.trajectory.add_sampled(reply)

    @precondition(lambda self: self.trajectory.nodes)
    @rule(data=st.data())
    def go_back(self, data):
        path = [ROOT]
        node = self.trajectory.head
        while node != ROOT:
            path.append(node)
            node = self.trajectory.nodes[node].parent
        self.trajectory.rewind(data.draw(st.sampled_from(path)), "history_edited")
        self.trajectory.add_context("user", self.fresh(1))

    @precondition(
        lambda self: self.trajectory.head != ROOT and self.trajectory.nodes[self.trajectory.head].turn is not None
    )
    @rule()
    def replace_the_last_token(self):
        self.trajectory.drop_last()
        self.trajectory.add_context("close", self.fresh(1))

    @rule(data=st.data())
    def make_the_prompt_anew(self, data):
        ids = list(self.trajectory.prompt.ids)
        kept = data.draw(st.integers(0, len(ids)))
        self.trajectory.rebase([("user", ids[:kept]), ("user", self.fresh(1))], "template")

    @invariant()
    def every_sampled_token_has_loss_once(self):
        samples = [sample.to_json() for sample in self.trajectory.samples()]
        found = check_exactness([exchange for exchange in self.log if exchange.ids], samples)
        assert found.trained == found.sampled, found.faults
        assert not found.faults
        own = report(self.trajectory, self.trajectory.samples())
        assert (own.sampled, own.trained) == (found.sampled, found.sampled)

    @invariant()
    def the_prompt_is_the_path(self):
        assert self.trajectory.prompt.json_array() == TokenIds(self.trajectory.prompt.ids).json_array()


AnyRollout.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestAnyRollout = AnyRollout.TestCase


@given(st.lists(st.lists(st.integers(0, 200_000), max_size=5), max_size=6))
def test_ids_are_written_as_one_array_however_they_come(parts):
    import json

    ids = TokenIds()
    for part in parts:
        ids.extend(part)
    assert json.loads(ids.json_array()) == [token for part in parts for token in part] == list(ids.ids)
