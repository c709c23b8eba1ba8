"""Generated text in a README, between two marks."""

from __future__ import annotations


def between(readme: str, begin: str, end: str, text: str) -> str:
    """Return a README with this text between its marks; raises `ValueError` unless each mark occurs exactly once."""
    if readme.count(begin) != 1 or readme.count(end) != 1:
        raise ValueError(f"expected a README with {begin} and {end}, each once")
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"
