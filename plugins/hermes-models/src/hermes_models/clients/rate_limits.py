"""Rate limits: parse the wait that a server asks for, and throttle requests meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

logger = logging.getLogger(__name__)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = (
    r"\d{1,9}(?:\.\d{1,9})?\s?(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
)
_SPAN: Final = re.compile(rf"{_PART}(?:,?\s?{_PART}){{0,4}}", re.IGNORECASE)
"""Matches 6m0s, 1h2m3.5s, 20ms, 20 seconds."""
_PARTS: Final = re.compile(r"([\d.]+)\s?([a-z]+)", re.IGNORECASE)
# OpenAI writes "Please try again in 6m0s."; Azure and Gemini write "retry after 20 seconds", "retry in 34.07s".
_SAID: Final = re.compile(rf"\b(?:again|retry|wait)\s(?:in\s|after\s|for\s)?({_SPAN.pattern})", re.IGNORECASE)
# google.rpc.RetryInfo, in the details of an error.
_RETRY_DELAY: Final = re.compile(r'"retryDelay"\s{0,4}:\s{0,4}"(\d{1,9}(?:\.\d{1,9})?)s"')
_RESET: Final = re.compile(r"((?:x-|anthropic-)?ratelimit-)(?:reset(?:-([\w-]+))?|([\w-]+)-reset)")
# The IETF draft for header fields: `RateLimit: "default";r=0;t=30`.
_FIELD: Final = re.compile(r";\s?t=(\d{1,9})")
_SILENCE: Final = 60.0
"""Minimum seconds between two log lines about rate limits."""
_EPOCH: Final = 1e9
_EPOCH_MILLISECONDS: Final = 1e12


def requested_wait(headers: Mapping[str, str], text: str, now: float) -> float | None:
    """Return the seconds that a server asks to wait, or None if it gives no wait in a known form.

    Sources in this order: `retry-after-ms`, `Retry-After` (seconds or a date), the reset times of exhausted limits
    (OpenAI, Groq, Anthropic, OpenRouter, the IETF draft), the error's text. `now` is the wall clock.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    found = [
        _parse_number(given.get("retry-after-ms", ""), 0.001),
        _moment(given.get("retry-after", ""), now),
        _reset(given, now),
        _wait_in_text(text),
    ]
    return next((max(0.0, wait) for wait in found if wait is not None and math.isfinite(wait)), None)


def _parse_number(value: str, unit: float) -> float | None:
    try:
        return float(value) * unit
    except ValueError:
        return None


def _moment(value: str, now: float) -> float | None:
    """Parse a number of seconds, a Unix time, a duration, or a date in HTTP or ISO form."""
    number = _parse_number(value, 1.0)
    if number is not None:
        if number >= _EPOCH:
            return (number / 1000 if number >= _EPOCH_MILLISECONDS else number) - now
        return number
    if _SPAN.fullmatch(value):
        return _span(value)
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(value)
        except (ValueError, OverflowError):
            continue
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return None


def _span(text: str) -> float:
    total = 0.0
    for number, word in _PARTS.findall(text):
        unit = "ms" if word.lower().startswith(("ms", "mil")) else word[0].lower()
        total += float(number) * _UNITS[unit]
    return total


def _reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return when all exhausted limits are reset; if none is marked exhausted, the earliest reset."""
    used_up: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if (found := _RESET.fullmatch(name)) is None or (wait := _moment(value, now)) is None:
            continue
        start, what = found[1], found[2] or found[3]
        names = (f"{start}remaining-{what}", f"{start}{what}-remaining") if what else (f"{start}remaining",)
        left = next((headers[other] for other in names if other in headers), "")
        (used_up if left == "0" else others).append(wait)
    if field := _FIELD.search(headers.get("ratelimit", "")):
        others.append(float(field[1]))
    return max(used_up) if used_up else min(others, default=None)


def _wait_in_text(text: str) -> float | None:
    if found := _RETRY_DELAY.search(text):
        return float(found[1])
    found = _SAID.search(text)
    return None if found is None else _span(found[1])


class PauseTooLongError(Exception):
    """A server asks for a longer pause than the caller's patience."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:.1f} s")
        self.seconds = seconds


class Throttle:
    """Sends requests without a limit until a server refuses one for its rate limit.

    After a refusal, no request is sent until the requested wait is over. Then half as many run at a time. Each time
    that many have been answered, the number grows by a tenth, at least by one. Belongs to one event loop.
    """

    def __init__(
        self,
        name: str,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._name = name
        self._sleep = sleep
        self._random = rng or random.Random()  # noqa: S311 - spreads requests, guards nothing
        self._limit = math.inf
        self._active = 0
        self._resumes = 0.0
        self._lowered = 0.0
        self._said = -math.inf
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, patience: float = math.inf) -> float:
        """Wait for a turn; return its start time, to be passed to `leave`.

        Raises:
            PauseTooLongError: The server asks for a pause of more than `patience` seconds.
        """
        self._require_patience(patience)
        await self._take_turn()
        seen = 0.0
        try:
            while self._resumes > max(seen, time.monotonic()):
                seen = self._resumes
                self._require_patience(patience)
                # A random bit later than asked, so that requests do not all go out at once.
                await self._sleep((seen - time.monotonic()) * (1 + 0.1 * self._random.random()))
        except BaseException:
            self._pass_on()
            raise
        return time.monotonic()

    def _require_patience(self, patience: float) -> None:
        if (pause := self.seconds_left()) > patience:
            raise PauseTooLongError(pause)

    async def _take_turn(self) -> None:
        if not self.is_full:
            self._active += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except BaseException:
            if not waiting.cancelled():
                self._pass_on()  # the turn came at the same moment
            raise

    @property
    def is_full(self) -> bool:
        """Whether the next request has to wait until another one ends."""
        return self._active >= self._limit or bool(self._waiting)

    def seconds_left(self) -> float:
        """Return the seconds until the next request may be sent."""
        return max(0.0, self._resumes - time.monotonic())

    def leave(self, began: float, *, wait: float | None, is_answered: bool) -> None:
        """End a turn; `wait` is the seconds to pause if the server refused it for its rate limit."""
        if wait is not None:
            self._lower(began, wait)
        elif is_answered and began >= self._lowered and self._limit < math.inf:
            self._limit += max(1.0, self._limit / 10) / self._limit
        self._pass_on()

    def _pass_on(self) -> None:
        self._active -= 1
        while self._waiting and self._active < self._limit:
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._active += 1
                waiting.set_result(None)

    def _lower(self, began: float, wait: float) -> None:
        now = time.monotonic()
        self._resumes = max(self._resumes, now + wait)
        # A request sent before the last reduction says nothing about the present number.
        if began < self._lowered:
            return
        self._lowered = now
        self._limit = max(1.0, min(self._limit, self._active) // 2)
        if now - self._said >= _SILENCE:
            self._said = now
            words = "%s limits the rate: no requests for %.1f s, then %d at a time, increasing with each answer"
            logger.warning(words, self._name, wait, self._limit)
