from __future__ import annotations

import pytest

from tiny_rl.run import options


@pytest.mark.parametrize("seeds", [[3], [3, 4, 5], [9, 0]])
def test_a_run_plays_the_seeds_that_it_is_given(seeds):
    assert options(["--seeds", *map(str, seeds)])["seeds"] == seeds
