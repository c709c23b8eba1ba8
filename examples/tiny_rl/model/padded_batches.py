"""Sequences of unequal length as arrays of few shapes, so that each is compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tiny_rl.model.transformer import Array

WIDTHS: Final = (32, 64, 96, 128, 192, 256, 384, 512)
"""The lengths that arrays may have."""


def width(length: int) -> int:
    """Return the least allowed length that holds `length`."""
    for allowed in WIDTHS:
        if length <= allowed:
            return allowed
    raise ValueError(f"at most {WIDTHS[-1]} tokens were wanted, found {length}")


def padded(rows: Sequence[Sequence[Any]], *, filler: float = 0) -> Array:
    """Return rows as one array, filled up on the right."""
    # Of all rows: an array of short names would cut the longer ones short.
    kind = np.result_type(*{np.asarray(row).dtype for row in rows})
    array = np.full((len(rows), width(max(map(len, rows)))), filler, kind)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
