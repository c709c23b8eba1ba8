from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="jax is not installed")

from tiny_rl.model.padded_batches import padded


def test_a_longer_name_behind_a_shorter_one_keeps_its_length():
    """Truncated to `v1`, the data of step 10 would be checked against the weights of step 1."""
    assert padded([["v9"], ["v10", ""]])[1, 0] == "v10"


def test_rows_are_filled_up_on_the_right():
    array = padded([[1], [2, 3]], filler=7)
    assert array.shape == (2, 32)
    assert array[0, :3].tolist() == [1, 7, 7]
    assert array.dtype.kind == "i"
