"""JSON by the C functions of the package `json`, which itself imports `re` for what frames do not need."""

from __future__ import annotations

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def _refuse(value: object) -> None:
    raise TypeError(f"expected something that JSON has, got {type(value).__name__}")


class _Rules:
    """The settings of `json.JSONDecoder`, which the scanner reads from attributes."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _ENCODER: Any = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)
    _SCANNER: Any = make_scanner(_Rules)  # type: ignore[arg-type]  # any object with these attributes

    def to_json(value: Any) -> str:
        """Return a value as JSON without spaces, in ASCII; names that are not UTF-8 become escaped surrogates."""
        return "".join(_ENCODER(value, 0))

    def from_json(text: str) -> Any:
        """Return the value of a JSON text without spaces around it; raises ValueError."""
        try:
            value, end = _SCANNER(text, 0)
        except StopIteration:
            raise ValueError("no JSON") from None
        if end != len(text):
            raise ValueError("more than one JSON value")
        return value

except (ImportError, AttributeError, TypeError):  # a Python of another make, or of a later version
    import json

    to_json = json.JSONEncoder(separators=(",", ":")).encode  # type: ignore[assignment]  # it names the value `o`
    from_json = json.JSONDecoder().decode  # type: ignore[assignment]  # it has another, private parameter
