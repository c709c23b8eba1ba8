"""A short patience for behaviour that a broken component lacks; tests that must pass keep the suite's patience."""

from __future__ import annotations

from typing import ClassVar

import pytest


class Impatient:
    """A mutant: `caught_by` names the tests that must fail, and `in_vain` is the number of seconds that these wait."""

    caught_by: frozenset[str] = frozenset()
    in_vain: ClassVar[float] = 2.0

    @pytest.fixture(autouse=True)
    def _wait_in_vain_for_a_moment_only(self, request):
        if request.function.__name__ in self.caught_by:
            self.patience = self.in_vain
