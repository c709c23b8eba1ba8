"""Reads what W&B writes offline: `run-ID.wandb`, a log of records in LevelDB's format after a header of seven bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK = 32 * 1024
_HEADER = 7


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of one offline run: its id, names, config, history and summary."""
    from wandb.proto import wandb_internal_pb2

    records: Any = wandb_internal_pb2  # the module has no type information
    (file,) = folder.glob("run-*.wandb")
    found: dict[str, Any] = {"config": {}, "history": [], "summary": {}, "exit_code": None}
    for data in _records(file.read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"id": run.run_id, "project": run.project, "name": run.display_name, "group": run.run_group}
            found["config"] |= _values(run.config.update)
        elif kind == "history":
            found["history"].append(_values(record.history.item))
        elif kind == "summary":
            found["summary"] |= _values(record.summary.update)
        elif kind == "exit":
            found["exit_code"] = record.exit.exit_code
    return found


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[bytes]:
    """Yield whole records; one that does not fit into a block is in parts (1 whole, 2 first, 3 middle, 4 last)."""
    position, parts = _HEADER, b""
    while position + _HEADER <= len(data):
        if _BLOCK - position % _BLOCK < _HEADER:
            position += _BLOCK - position % _BLOCK
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        parts += data[position + _HEADER : position + _HEADER + length]
        position += _HEADER + length
        if kind in {1, 4}:
            yield parts
            parts = b""
