"""Detection of marks between quotes."""

from __future__ import annotations

import pytest

from hermes_parsers.engine.scanning.quoted_marks import is_between_quotes


@pytest.mark.parametrize(
    ("text", "is_quoted"),
    [
        ("a `<m>` b", True),
        ('print("<m>")', True),
        ("'<m>'", True),
        ("“<m>”", True),
        ("„<m>“", True),
        ("«<m>»", True),
        ("<m>", False),
        ("`<m>", False),
        ("<m>`", False),
        ("`<m>'", False),
        ("“<m>“", False),
        ("`<m> `", False),
        (" <m> ", False),
    ],
)
def test_a_mark_is_between_quotes_where_both_match(text: str, is_quoted: bool) -> None:  # noqa: FBT001 - a case's value
    start = text.index("<m>")
    assert is_between_quotes(text, start, start + len("<m>")) is is_quoted
