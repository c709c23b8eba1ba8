"""Explanations read from the recorded answers of a real Nomad."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from nomad_shapes import RECORDED

from hermes_backend_nomad.failures import ContainerStartError, DriverConfigError, ImageError, NomadError, PlacementError
from hermes_backend_nomad.reading import ending, newest, placement_error, why_not_running

_STOPPED, _RESCHEDULED, _OLDEST = RECORDED["allocations_after"]["body"]
(_RUNNING,) = RECORDED["allocations"]["body"]
(_UNPULLED,) = RECORDED["allocations_noimage"]["body"]
_EVALUATIONS = RECORDED["job_evaluations_unplaceable"]["body"]


def test_old_failed_allocations_do_not_matter() -> None:
    every = [_STOPPED, _OLDEST, _RUNNING, _RESCHEDULED]
    assert newest(every, "g") is _RUNNING
    assert newest(every, "another") is None


def test_one_that_runs_has_nothing_wrong_with_it() -> None:
    assert why_not_running(_RUNNING, image="sbx/deb:1") is None


def test_an_image_that_cannot_be_pulled_shows_before_the_allocation_has_failed() -> None:
    assert _UNPULLED["ClientStatus"] == "pending"
    error = why_not_running(
        {**_UNPULLED, "TaskStates": {"sandbox": {"Events": _UNPULLED["TaskStates"]["sandbox"]["Events"][:3]}}},
        image="sbx/none:1",
    )
    assert isinstance(error, ImageError)
    assert "image sbx/none:1 cannot be pulled for g of job bad2 on node vm" in str(error)


def test_one_that_is_started_again_and_again_is_told_by_its_last_event() -> None:
    error = why_not_running(_UNPULLED, image="sbx/none:1")
    assert isinstance(error, ContainerStartError)
    assert "Exceeded allowed attempts" in str(error)


def test_a_config_that_the_driver_does_not_take_is_told_from_other_failures() -> None:
    error = why_not_running(_RESCHEDULED, image="sbx/deb:1")
    assert isinstance(error, DriverConfigError)
    assert 'No argument or block type is named "init".' in str(error)


def test_one_that_was_stopped_says_why() -> None:
    assert ending(_STOPPED).startswith("alloc not needed due to job update; All tasks have completed; ")
    error = why_not_running({**_STOPPED, "TaskStates": {"sandbox": {"State": "dead", "Events": []}}}, image="sbx/deb:1")
    assert isinstance(error, ContainerStartError)
    assert "is complete: alloc not needed due to job update" in str(error)


def test_one_that_was_preempted_names_the_one_that_took_its_place() -> None:
    assert ending({**_STOPPED, "PreemptedByAllocation": "1234"}).startswith("preempted by allocation 1234")


def test_a_failed_placement_is_read_from_the_evaluations_since_its_registration() -> None:
    error = placement_error(_EVALUATIONS, "g", 233)
    assert isinstance(error, PlacementError)
    assert "Nomad cannot place g of job bad: too little cpu on 1 node(s) (1 evaluated; available: dc1: 1)" in str(error)
    assert placement_error(_EVALUATIONS, "g", 235) is None
    assert placement_error(_EVALUATIONS, "another", 233) is None


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (
            {"DimensionExhausted": None, "NodesEvaluated": 0, "NodesAvailable": {"dc1": 0}},
            "no node is eligible (0 eval",
        ),
        (
            {"DimensionExhausted": None, "ConstraintFiltered": {"missing drivers": 2}},
            "'missing drivers' filters 2 node",
        ),
        ({"DimensionExhausted": None, "ClassFiltered": {"gpu": 1}}, "class gpu filtered on 1 node(s)"),
        ({"DimensionExhausted": None, "QuotaExhausted": ["small"]}, "quota small reached"),
        ({"DimensionExhausted": None}, "no node fits"),
    ],
)
def test_every_reason_not_to_place_is_said(metrics: dict[str, Any], said: str) -> None:
    evaluations = copy.deepcopy(_EVALUATIONS)
    evaluations[1]["FailedTGAllocs"]["g"] |= metrics
    assert said in str(placement_error(evaluations, "g", 0))


def test_an_evaluation_that_failed_says_so() -> None:
    failed = {**_EVALUATIONS[0], "Status": "failed", "StatusDescription": "maximum attempts reached (5)"}
    error = placement_error([failed], "g", 0)
    assert isinstance(error, NomadError)
    assert "gave up scheduling job bad: maximum attempts reached (5)" in str(error)
