"""Processes lists whose length a sandbox decides, without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_turns(function: Callable[[T], R], items: Iterable[T], *, at_once: int = 1000) -> list[R]:
    """Apply a function to each item; after every few items, let the event loop do other work."""
    made: list[R] = []
    rest = iter(items)
    while batch := list(islice(rest, at_once)):
        made += map(function, batch)
        await asyncio.sleep(0)
    return made
