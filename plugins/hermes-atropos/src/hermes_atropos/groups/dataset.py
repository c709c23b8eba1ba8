"""The items of `dataset_name`: a JSONL file, a folder of them by split, or a Hugging Face dataset."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from hermes_core.contracts.errors import ConfigError, UnavailableComponentError


def load_items(name: str, split: str) -> list[dict[str, Any]]:
    """Load one split; it blocks, so call it in a thread.

    From a file, records with this `split` or without one are used; from a folder, the file `<split>.jsonl`. Any other
    name is a Hugging Face dataset, which may use the network.
    """
    path = Path(name)
    if path.is_dir():
        path /= f"{split}.jsonl"
        if not path.is_file():
            found = ", ".join(sorted(file.stem for file in path.parent.glob("*.jsonl"))) or "none"
            raise ConfigError(f"dataset_name {name} has no {path.name}; its splits: {found}", hint="dataset_split: …")
        return _records(path)
    if path.is_file():
        items = [record for record in _records(path) if record.get("split", split) == split]
        if not items:
            raise ConfigError(f"dataset_name {name} has no record of the split {split!r}", hint="dataset_split: …")
        return items
    if path.suffix in {".jsonl", ".json"}:
        raise ConfigError(f"dataset_name {name}: no such file", hint="give a JSONL file or a Hugging Face dataset")
    return _hugging_face(name, split)


def _records(path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ConfigError(f"{path}:{number}: expected a JSON object, got {type(record).__name__}")
        records.append(record)
    return records


def _hugging_face(name: str, split: str) -> list[dict[str, Any]]:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise UnavailableComponentError(
            f"dataset_name {name!r} is not a file, and the package datasets is not installed",
            hint="pip install datasets",
        ) from error
    try:
        return [dict(record) for record in datasets.load_dataset(name, split=split)]
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"dataset_name {name!r}, split {split!r}, cannot be loaded: {str(error)[:300]}") from error
