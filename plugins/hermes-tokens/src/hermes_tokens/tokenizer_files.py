"""Read the files of a Hugging Face tokenizer's folder. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from hermes_core.contracts.errors import ConfigError

_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFolder:
    """A tokenizer's files: `tokenizer` is tokenizer.json's text, `added_tokens` are tokenizer_config.json's by id."""

    path: Path
    tokenizer: str
    templates: Mapping[str, str] = field(default_factory=dict)
    special_tokens: Mapping[str, Any] = field(default_factory=dict)
    added_tokens: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    stop_ids: tuple[int, ...] = ()

    @property
    def stop_tokens(self) -> tuple[str, ...]:
        """The texts of tokens that end a turn."""
        eos = self.special_tokens.get("eos_token")
        return () if eos is None else (eos,)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the folder; only tokenizer.json is required."""
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ConfigError(
                f"expected a tokenizer's folder with tokenizer.json, got {path} without one",
                hint="--tokenizer DIR takes a folder written by tokenizer.save_pretrained(DIR)",
            )
        config = _object(path / "tokenizer_config.json")
        added = config.get("added_tokens_decoder") or {}
        return cls(
            path=path,
            tokenizer=_text(file),
            templates=_templates(path, config),
            special_tokens=_special_tokens(path, config),
            added_tokens={int(number): entry for number, entry in added.items()},
            stop_ids=_stop_ids(_object(path / "generation_config.json")),
        )


def _templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Collect the templates by name; files win over tokenizer_config.json."""
    found = config.get("chat_template")
    if isinstance(found, str):
        templates = {"default": found}
    else:
        templates = {entry["name"]: entry["template"] for entry in found or ()}
    file = path / "chat_template.jinja"
    if file.is_file():
        templates["default"] = _text(file)
    more = sorted((path / "additional_chat_templates").glob("*.jinja"))
    return {**templates, **{file.stem: _text(file) for file in more}}


def _special_tokens(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the special tokens that a template may use by name (`bos_token`, …), as text."""
    values = {**_object(path / "special_tokens_map.json"), **config}
    named = {name: _content(values[name]) for name in _SPECIAL if values.get(name)}
    more = values.get("additional_special_tokens") or values.get("extra_special_tokens")
    if isinstance(more, Mapping):
        named |= {name: _content(value) for name, value in more.items()}
    elif more:
        named["additional_special_tokens"] = [_content(value) for value in more]
    return named


def _content(value: Any) -> Any:
    return value["content"] if isinstance(value, Mapping) else value


def _stop_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    found = config.get("eos_token_id")
    if found is None:
        return ()
    return (found,) if isinstance(found, int) else tuple(found)


def _object(file: Path) -> Mapping[str, Any]:
    """Return a JSON file's object, or an empty one if the file is missing."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(_text(file))
    except ValueError as error:
        raise ConfigError(f"expected JSON in {file}, got: {error}", hint="save the tokenizer again") from error
    if not isinstance(value, dict):
        raise ConfigError(f"expected a JSON object in {file}, got {type(value).__name__}")
    return value


def _text(file: Path) -> str:
    try:
        # Line ends are kept: a template's text is compared and hashed.
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected UTF-8 text in {file}, got: {error}") from error
