"""Reads YAML in which each key of a mapping occurs once; PyYAML alone would take the last one without a word."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from hermes_core.contracts.errors import ConfigError

_DEEPEST: Final = 100
"""Levels of a config: far more than any needs, and few enough for all that goes through them."""


def read_yaml(text: str, *, source: str) -> Any:
    """Return the value of a YAML text; `source` names it in errors.

    Raises:
        yaml.YAMLError: The text is not valid YAML.
        ConfigError: A key occurs twice, an alias contains itself, or values are nested too deeply.
    """
    loader = _Loader(text)
    loader.source = source
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    source = ""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._open: list[Any] = []
        """The anchors of the nodes that are being composed, None for those without one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; refuse an alias inside the node that it stands for."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs have no types for it
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open:
            found = f"expected an alias of a value that has ended, got *{event.anchor} inside &{event.anchor}"
            raise self._refusal(event, found, "write the value out, or remove the alias")
        if len(self._open) > _DEEPEST:
            found = f"expected at most {_DEEPEST} levels of nesting, got more"
            raise self._refusal(event, found, "remove brackets or indentation")
        return super().compose_node(parent, index)

    def compose_sequence_node(self, anchor: Any) -> yaml.SequenceNode:
        """Compose a list."""
        self._open.append(anchor)
        node = super().compose_sequence_node(anchor)
        self._open.pop()
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping; keys are compared before merge keys (`<<`) add theirs, which may repeat them."""
        self._open.append(anchor)
        node = super().compose_mapping_node(anchor)
        self._open.pop()
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    found = f"expected each key once, got {json.dumps(key.value, ensure_ascii=False)} again"
                    raise self._refusal(key, found, "remove one of them")
                seen.add((key.tag, key.value))
        return node

    def _refusal(self, part: Any, found: str, hint: str) -> ConfigError:
        return ConfigError(f"{self.source}, line {part.start_mark.line + 1}: {found}", hint=hint)
