"""Finds parsers that read the calls in replies for which no parser was chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.parsing import AttemptStatus
from hermes_core.discovery import Registry
from hermes_core.specs import ComponentSpec

_READABLE = {AttemptStatus.OK, AttemptStatus.REPAIRED}
_MOST_NAMED = 3
_LONGEST_READ = 100_000


def parsers_that_read(registry: Registry, texts: Sequence[str]) -> list[str]:
    """Return up to three registered parsers that find a call in the first text in which any parser does.

    Parsers with the most names come first: these are the ones that other frameworks have as well.
    """
    for text in texts:
        found = [name for name in _one_name_each(registry) if _reads(registry, name, text[:_LONGEST_READ])]
        if found:
            return found[:_MOST_NAMED]
    return []


def _reads(registry: Registry, name: str, text: str) -> bool:
    try:
        attempts = registry.create("parser", name).parse(text).attempts
    except Exception:  # noqa: BLE001 - a parser that needs options, or fails, is not suggested
        return False
    return any(attempt.status in _READABLE for attempt in attempts)


def _one_name_each(registry: Registry) -> Iterable[str]:
    """Yield one name of each parser, its module's if that is one of them."""
    names: dict[str, list[str]] = {}
    for name in registry.names("parser"):
        with contextlib.suppress(HermesError):  # a name that two plugins claim
            spec = registry.spec("parser", name)
            assert isinstance(spec, ComponentSpec)
            names.setdefault(spec.target, []).append(name)
    for target, known in sorted(names.items(), key=lambda item: -len(item[1])):
        module = target.partition(":")[0].rpartition(".")[2]
        yield module if module in known else known[0]
