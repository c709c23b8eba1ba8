"""Reads YAML in which each key of a mapping occurs once; PyYAML alone would take the last one without a word."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

_MERGE: Final = "tag:yaml.org,2002:merge"


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text; raises `yaml.YAMLError`, also for a key that occurs twice."""
    return yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping; keys are compared before merge keys (`<<`) add theirs, which may repeat them."""
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                line = first.setdefault((key.tag, key.value), key.start_mark.index)
                if line != key.start_mark.index:
                    found = f"expected each key once, got {json.dumps(key.value)} again"
                    raise yaml.composer.ComposerError(None, None, found, key.start_mark)
        return node
