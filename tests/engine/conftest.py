"""Tests against a real vLLM on this machine's processors: `make engine` alone runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "support"))

from families import FAMILIES, Family  # noqa: E402 - the line above makes them importable
from vllm_engine import Engine  # noqa: E402 - the same


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of one family after each other, those of the usual one first: each change costs a start."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    places = [place for place, item in enumerate(items) if item in mine]
    order = list(FAMILIES)
    for place, item in zip(places, sorted(mine, key=lambda item: order.index(_family(item))), strict=True):
        items[place] = item


def _family(item: pytest.Item) -> str:
    found = getattr(item, "callspec", None)
    family = found.params.get("family") if found is not None else None
    return next(iter(FAMILIES)) if family is None else family.name


class Engines:
    """The engines of a session, one at a time: a start costs half a minute, and two need more memory and processors."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._python = folder / "venv" / "bin" / "python"
        self._models = folder / "models"
        self._logs = logs
        self._engine: Engine | None = None

    def serve(self, family: Family, *flags: str) -> Engine:
        """Return an engine that serves a family's model; the one that is up, if it does, else another in its place."""
        model = family.model_folder(self._python, self._models)
        if self._engine is None or (self._engine.tokenizer_dir, self._engine.flags) != (model, flags):
            self.close()
            self._engine = Engine(self._python, model, self._logs / f"{family.name}.log", flags)
        self._engine.start()
        return self._engine

    def close(self) -> None:
        """Kill the engine that is up."""
        if self._engine is not None:
            self._engine.kill()


@pytest.fixture(scope="session")
def engines(tmp_path_factory) -> Iterator[Engines]:
    """Serve models: `engines.serve(family, *flags)`."""
    folder = Path(os.environ.get("HERMES_TEST_ENGINE", HERE.parent.parent / ".engine")).absolute()
    if not (folder / "venv" / "bin" / "python").exists():
        pytest.fail(f"Expected vLLM in {folder}, got none: run these tests by `make engine`", pytrace=False)
    found = Engines(folder, tmp_path_factory.mktemp("engines"))
    yield found
    found.close()


@pytest.fixture
def engine(engines) -> Engine:
    """An idle engine with the model of qwen3, which most tests take."""
    found: Engine = engines.serve(FAMILIES["qwen3"])
    assert found.becomes_idle(), "a test before this one has left requests in the engine"
    return found
