"""What a verifier returns is checked before it becomes a reward."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import NoVerdictError, VerifierError
from hermes_core.contracts.verifier import Score
from hermes_core.rollout.verification.scoring import check_score
from hermes_core.specs import VerifierSpec

SPEC = VerifierSpec(name="judge", summary="s", target="a.b:C")


@pytest.mark.parametrize(
    ("score", "error", "said"),
    [
        (0.5, VerifierError, "expected a Score, got float"),
        (Score(value="1.0"), NoVerdictError, "value: expected a finite number, got 1.0"),
        (Score(value=True), NoVerdictError, "value: expected a finite number, got True"),
        (Score(value=10**400), NoVerdictError, "value: expected a finite number, got 1000"),
        (Score(value=1.0, parts={"a": float("nan")}), NoVerdictError, "a: expected a finite number, got nan"),
        (Score(value=1.0, parts=[0.5]), VerifierError, "parts: expected a mapping"),
        (Score(value=1.0, detail=5), VerifierError, "detail: expected a text, got int"),
        (Score(value=1.5), NoVerdictError, "outside its bounds 0.0 to 1.0"),
    ],
)
def test_a_score_that_cannot_be_a_reward_is_refused(score, error, said):
    with pytest.raises(error, match="verifier 'judge': ") as caught:
        check_score(score, SPEC)
    assert said in str(caught.value)
