"""Pack sequences of unequal length into arrays of few shapes, so that each shape is compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tiny_rl.model.transformer import Array

WIDTHS: Final = (32, 64, 96, 128, 192, 256, 384, 512)
"""The allowed lengths of arrays."""


def width(length: int) -> int:
    """Return the smallest allowed length of at least `length`."""
    for allowed in WIDTHS:
        if length <= allowed:
            return allowed
    raise ValueError(f"expected at most {WIDTHS[-1]} tokens, got {length}")


def padded(rows: Sequence[Sequence[Any]], *, filler: float = 0) -> Array:
    """Return rows as one array, padded on the right."""
    # The dtype of all rows: an array of short names would truncate longer ones.
    kind = np.result_type(*{np.asarray(row).dtype for row in rows})
    array = np.full((len(rows), width(max(map(len, rows)))), filler, kind)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
