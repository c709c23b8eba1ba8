"""Which parsers would have read the calls in a reply that none was chosen for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.parsing import AttemptStatus
from hermes_core.discovery import Registry
from hermes_core.specs import ComponentSpec

_READABLE = {AttemptStatus.OK, AttemptStatus.REPAIRED}
_MOST_NAMED = 3
_LONGEST_READ = 100_000


def parsers_that_read(registry: Registry, text: str) -> list[str]:
    """Return up to three registered parsers that find a call in the text, those with the most names first."""
    found: list[str] = []
    for name in _one_name_each(registry) if text else ():
        try:
            attempts = registry.create("parser", name).parse(text[:_LONGEST_READ]).attempts
        except Exception:  # noqa: BLE001, S112 - one that needs options, or fails, is no advice
            continue
        if any(attempt.status in _READABLE for attempt in attempts):
            found.append(name)
        if len(found) == _MOST_NAMED:
            break
    return found


def _one_name_each(registry: Registry) -> Iterable[str]:
    """Return a name of each parser, where there is one that of its module; many have names of other frameworks."""
    names: dict[str, list[str]] = {}
    for name in registry.names("parser"):
        with contextlib.suppress(HermesError):  # a name that two plugins claim
            spec = registry.spec("parser", name)
            assert isinstance(spec, ComponentSpec)
            names.setdefault(spec.target, []).append(name)
    for target, known in sorted(names.items(), key=lambda item: -len(item[1])):
        module = target.partition(":")[0].rpartition(".")[2]
        yield module if module in known else known[0]
