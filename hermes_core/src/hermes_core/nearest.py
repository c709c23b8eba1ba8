"""Suggestions for a misspelt name."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest_names"]


def nearest_names(name: str, known: Iterable[str], most: int = 1, *, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most like `name`, best first; none below a likeness (0 to 1) of `cutoff`."""
    from difflib import get_close_matches

    return get_close_matches(name, list(dict.fromkeys(known)), most, cutoff)


def did_you_mean(
    name: str, known: Iterable[str], *, otherwise: str = "", also: str = "", most: int = 1, cutoff: float = 0.6
) -> str:
    """Return "did you mean …?" with the nearest names, for an error's hint, and the sentence `also` after it.

    If nothing is near, return `otherwise`, or else `also` alone.
    """
    if not (near := nearest_names(name, known, most, cutoff=cutoff)):
        return otherwise or also
    return f"did you mean {' or '.join(map(repr, near))}? {also[:1].upper()}{also[1:]}".rstrip()
