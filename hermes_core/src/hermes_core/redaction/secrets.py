"""Decides which values of a configuration are secret, for terminals, files, leases and errors alike.

Secret are exactly: values declared as pydantic's `SecretStr` or `SecretBytes`; user and password
of an address; values of tables of variables and headers, by the table's name; options whose names end in one of
`SECRET_NAMES`. What a component's `Options` declare is read by `discovery.option_secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

WITHHELD: Final = "(withheld)"
"""Replaces a secret."""

SECRET_NAMES: Final = frozenset({
    "access_key", "api_key", "apikey", "authorization", "passphrase", "passwd", "password", "private_key", "secret",
    "secret_key", "token",
})  # fmt: skip
"""Last words of the names of secret options: `token`, `db_password`, `apiKey`, `X-Api-Key`."""

ENVIRONMENT_NAMES: Final = frozenset({"env", "env_vars", "environment", "extra_headers", "headers", "modal_env_vars"})
"""Whole names of tables of variables and headers: mappings, lists, or texts as `A=x;B=y`."""

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
# A password may hold a slash against the rules; text after a colon that is not a port is taken for one. Text
# before a digest is the name of an image. No part of a text is tried for two addresses: that could take hours.
_LOGIN: Final = re.compile(
    r"://((?:[^/?#\s\"]*|[^/?#\s:@\"\[]*:(?!\d+[/?#])(?:(?!://)[^\s'\"])*)@)(?!sha\d{1,4}:[0-9a-f])"
)


def is_secret_name(name: str) -> bool:
    """Tell whether an option or variable of this name is secret: by its last one or two words, in any spelling."""
    words = _plain(name).split("_")
    return words[-1] in SECRET_NAMES or "_".join(words[-2:]) in SECRET_NAMES


def redact_text(text: str) -> str:
    """Return a text with `WITHHELD` for user and password of each address."""
    return _LOGIN.sub(lambda found: f"://{WITHHELD}@" if _login(found) else found[0], text)


def redact_address(address: str) -> str:
    """Return an address without user and password, also one that is not a URL: all before its last `@` is withheld."""
    before, at, rest = address.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme + separator if separator else ''}{WITHHELD}@{rest}" if at else address


def redact(value: Any, name: str = "") -> Any:
    """Return a copy of JSON values found under `name`, with `WITHHELD` for each secret."""
    return _Redaction().walk(value, name)


def redact_at(value: Any, place: Sequence[Any]) -> Any:
    """Return a JSON value redacted by the names on the way to it, `place`."""
    *above, name = map(str, place or ("",))
    if any(is_secret_name(step) or _plain(step) in ENVIRONMENT_NAMES for step in above):
        return WITHHELD
    return redact(value, name)


def quote_value(value: Any, place: Sequence[Any]) -> str:
    """Return the `repr` of a redacted value for an error."""
    return f"{redact_at(value, place)!r:.200}"


def validation_message(problem: Mapping[str, Any], found: str = "") -> str:
    """Return what pydantic says is wrong with a value, and `found`, the value as it may be shown.

    A validator's message is not changed; if it says what it got, `found` is left out.
    """
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message.startswith("Input should be "):
        message = f"expected {message.removeprefix('Input should be ').replace('a valid dictionary', 'a mapping')}"
    return f"{message}, got {found}" if found and not re.search(r"\b(got|found) ", message) else message


def yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML text and where, without the line itself, which may hold a secret."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return str(error) if isinstance(error, UnicodeDecodeError) else type(error).__name__
    shown = re.sub(r"'([^']*)'", lambda found: found[0] if len(found[1]) < 2 else "'…'", problem)
    return f"{shown} in line {mark.line + 1}, column {mark.column + 1}"


def find_secrets(values: Any) -> frozenset[str]:
    """Return the texts that `redact` withholds of these values, to remove them from other texts."""
    walk = _Redaction()
    walk.walk(values)
    return frozenset(walk.texts)


def strip_secrets(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return values without their secrets, to be kept on disk, and the secrets' paths, such as "jump.0.password".

    Tables of variables are emptied without a path: they never help to find a resource again.
    """
    walk = _Redaction()
    return _strip(walk.walk(values)), tuple(walk.paths)


def comparable_values(values: Any) -> Any:
    """Return values for a comparison of two runs, without secrets, and with only the names of variables.

    A secret that is missing in one of them makes no difference: it may be in a variable there.
    """
    return _comparable(redact(values), "")


def find_withheld(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of secrets for which `WITHHELD` was given."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from find_withheld(item, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from find_withheld(item, f"{path}.{index}".lstrip("."))
    elif isinstance(value, str) and (value == WITHHELD or f"://{WITHHELD}@" in value):
        yield path


class _Redaction:
    """Goes through JSON values; notes the paths and the texts of what it withholds."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.texts: set[str] = set()

    def walk(self, value: Any, name: str = "", path: str = "") -> Any:
        if value is None or isinstance(value, bool) or value in ("", b""):
            return value
        if is_secret_name(name) or hasattr(value, "get_secret_value"):
            self.paths.append(path)
            return self._withhold(value)
        # A name alone, such as Modal's `environment`, is not a table.
        if _plain(name) in ENVIRONMENT_NAMES and (not isinstance(value, str) or "=" in value or ": " in value):
            return self._environment(value)
        if isinstance(value, str) or hasattr(value, "unicode_string"):  # an address type of pydantic's is not a str
            return self._text(str(value), path)
        return self._inside(value.model_dump() if hasattr(value, "model_dump") else value, path)

    def _inside(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            keys = {key: redact_text(key) if isinstance(key, str) else key for key in value}
            return {keys[key]: self.walk(item, str(key), f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.walk(item, "", f"{path}.{n}".lstrip(".")) for n, item in enumerate(value)]
        return value

    def _withhold(self, value: Any) -> str:
        self.texts.update(_leaves(value))
        return WITHHELD

    def _environment(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item if item is None else self._withhold(item) for key, item in value.items()}
        # One of several, such as `A=x` or `A: x`, may be repeated without its name.
        parts = [part for text in _leaves(value) for part in re.split(r"[;\n]", text)]
        self.texts.update(re.split(r"=|: ?", part, maxsplit=1)[-1] for part in parts)
        return WITHHELD

    def _text(self, value: str, path: str) -> str:
        if logins := list(filter(None, map(_login, _LOGIN.finditer(value)))):
            self.paths.append(path)
            self.texts.update(logins)
        return redact_text(value)


def _strip(value: Any) -> Any:
    """Leave out withheld values; of an address, only its withheld part."""
    if isinstance(value, Mapping):
        pairs = {key: _strip(item) for key, item in value.items()}
        return {key: item for key, item in pairs.items() if item != WITHHELD}
    if isinstance(value, list):
        return [item for item in map(_strip, value) if item != WITHHELD]
    return value.replace(f"://{WITHHELD}@", "://") if isinstance(value, str) else value


def _comparable(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if _plain(name) in ENVIRONMENT_NAMES:
            return {key: WITHHELD for key in sorted(map(str, value)) if not is_secret_name(key)}
        pairs = {key: _comparable(item, str(key)) for key, item in value.items()}
        return {key: item for key, item in pairs.items() if item not in (WITHHELD, {})}
    return [_comparable(item, "") for item in value if item != WITHHELD] if isinstance(value, list) else _strip(value)


def _leaves(value: Any) -> list[str]:
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return [text for item in value for text in _leaves(item)]
    return [] if value is None else [value.decode(errors="replace") if isinstance(value, bytes) else str(value)]


def _login(found: re.Match[str]) -> str:
    """Return the password of an address, or its lone user, which for SSH is not a secret: git+ssh://git@host."""
    user, colon, password = found[1][:-1].partition(":")
    is_open = not colon and found.string.endswith("ssh", 0, found.start())
    return "" if is_open else password or user


def _plain(name: str) -> str:
    return _WORDS.sub("_", name).strip("_").lower()
