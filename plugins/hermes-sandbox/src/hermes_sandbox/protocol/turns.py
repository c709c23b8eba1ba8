"""Work on as much as a sandbox says there is, without keeping the event loop from everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_turns(function: Callable[[T], R], items: Iterable[T], *, at_once: int = 1000) -> list[R]:
    """Return what a function makes of each item; after so many of them the event loop does what else there is."""
    made: list[R] = []
    rest = iter(items)
    while batch := list(islice(rest, at_once)):
        made += map(function, batch)
        await asyncio.sleep(0)
    return made
