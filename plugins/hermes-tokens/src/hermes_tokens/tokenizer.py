"""A Hugging Face tokenizer with its chat template, and two ways to encode: template text and untrusted text.

Needs only the library `tokenizers`; imported on demand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.chat_template.template import INSTALL_HINT, ChatTemplate, variables_of
from hermes_tokens.tokenizer_files import TokenizerFolder
from hermes_tokens.untrusted_text import PlainEncoder
from hermes_tokens.vocabulary import ControlToken, ControlTokens, is_blank, text_ids

NO_TEMPLATE = "add chat_template.jinja to the tokenizer's folder, or chat_template to its tokenizer_config.json"


class ChatTokenizer:
    """Encodes and decodes for one model; shared by all rollouts of a run.

    `stop_ids` end a turn; untrusted text is never encoded to one of `control_ids`. `fingerprint` identifies tokenizer
    and template together.
    """

    def __init__(
        self,
        backend: Any,
        *,
        templates: Mapping[str, str],
        stop_ids: Iterable[int] = (),
        special_tokens: Mapping[str, Any] | None = None,
    ) -> None:
        serialised: str = backend.to_str()
        data = json.loads(serialised)
        self._backend = _without_limits(backend)
        self.templates = dict(templates)
        self.special_tokens = dict(special_tokens or {})
        self.stop_ids = frozenset(stop_ids)
        entries = [entry for entry in data["added_tokens"] if not is_blank(entry["content"])]
        self.controls = ControlTokens(ControlToken.of(entry) for entry in entries)
        self.control_ids = frozenset(self.controls.by_id) - (text_ids(data) - self.stop_ids)
        self._compiled: dict[str, ChatTemplate] = {}
        self._plain = PlainEncoder(data, self.control_ids)
        described = json.dumps([self.templates, sorted(self.stop_ids), self.special_tokens], default=str)
        self.fingerprint = sha256(f"{serialised}\0{described}".encode("utf-8", "replace")).hexdigest()

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a tokenizer's folder without downloading anything."""
        read = TokenizerFolder.read(Path(folder))
        backend = _parse(read.tokenizer, read.path)
        _add_missing(backend, read.added_tokens, read.path)
        names = [*read.stop_tokens]
        stops = {backend.token_to_id(name) for name in names} | set(read.stop_ids)
        return cls(
            backend,
            templates=read.templates,
            stop_ids=(token for token in stops if token is not None),
            special_tokens=read.special_tokens,
        )

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Convert a fast tokenizer of transformers, or any object with the same attributes."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                f"expected a fast tokenizer, got {type(tokenizer).__name__} without backend_tokenizer",
                hint="load it with AutoTokenizer.from_pretrained(…, use_fast=True)",
            )
        template = getattr(tokenizer, "chat_template", None)
        templates = template if isinstance(template, Mapping) else {"default": template} if template else {}
        stops = getattr(tokenizer, "eos_token_id", None)
        special = getattr(tokenizer, "special_tokens_map", None) or {}
        return cls(
            _copy(backend),
            templates=templates,
            stop_ids=[] if stops is None else [stops] if isinstance(stops, int) else stops,
            special_tokens={name: value if isinstance(value, list) else str(value) for name, value in special.items()},
        )

    def is_special(self, token: int) -> bool:
        """Return whether an id is a control token and not text."""
        found = self.controls.by_id.get(token)
        return found is not None and found.special

    @property
    def chat_template(self) -> str | None:
        """The template for conversations without tools, or None."""
        return self.templates.get("default")

    def template_for(self, tools: Sequence[Any]) -> str:
        """Return the template that transformers would use; one named `tool_use` is for conversations with tools."""
        chosen = self.templates.get("tool_use") if tools else None
        chosen = chosen or self.templates.get("default")
        if chosen:
            return chosen
        if self.templates:
            raise ConfigError(
                f"expected a chat template named default, got {', '.join(sorted(self.templates))}",
                hint=NO_TEMPLATE,
            )
        raise ConfigError("expected a tokenizer with a chat template, got one without", hint=NO_TEMPLATE)

    def template(self, tools: Sequence[Any]) -> ChatTemplate:
        """Return the template for these tools, compiled once."""
        text = self.template_for(tools)
        if text not in self._compiled:
            self._compiled[text] = ChatTemplate(text, special_tokens=self.special_tokens)
        return self._compiled[text]

    @cached_property
    def template_variables(self) -> frozenset[str]:
        """The variables that the chat templates read, including their own switches such as `enable_thinking`."""
        return frozenset().union(*map(variables_of, self.templates.values()))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, including control tokens; incomplete characters become U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def encode_scaffold(self, text: str) -> list[int]:
        """Encode template text: control tokens in it become control ids."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str, *, at_start: bool = False, continued: bool = False) -> list[int]:
        """Encode untrusted text; the result never contains a control id.

        The text follows a control token. `at_start`: it is at the very start instead; `continued`: it follows other
        text that is already encoded.
        """
        return self._plain.encode(text, at_start=at_start, continued=continued)


def _parse(text: str, path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "reading a tokenizer needs the library tokenizers, which is not installed", hint=INSTALL_HINT
        ) from error
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for any invalid file
        raise ConfigError(
            f"expected a tokenizer in {path / 'tokenizer.json'}, got one that cannot be read: {error}",
            hint="update the library tokenizers, or save the tokenizer again with it",
        ) from error


def _copy(backend: Any) -> Any:
    return type(backend).from_str(backend.to_str())


def _without_limits(backend: Any) -> Any:
    """Switch off truncation and padding, which would drop or add tokens silently."""
    backend.no_truncation()
    backend.no_padding()
    return backend


def _add_missing(backend: Any, entries: Mapping[int, Mapping[str, Any]], path: Path) -> None:
    """Add tokens that tokenizer_config.json has and tokenizer.json lacks."""
    from tokenizers import AddedToken

    for number, entry in sorted(entries.items()):
        content = entry["content"]
        if backend.token_to_id(content) == number and number in backend.get_added_tokens_decoder():
            continue
        flags = {name: bool(entry.get(name)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        backend.add_tokens([AddedToken(content, **flags)])
        if backend.token_to_id(content) != number:
            raise ConfigError(
                f"expected token {content!r} to have id {number} in {path}, got {backend.token_to_id(content)}",
                hint="tokenizer.json and tokenizer_config.json disagree; save the tokenizer again",
            )
