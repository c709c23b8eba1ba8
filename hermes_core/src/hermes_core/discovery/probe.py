"""The child side of `plugins doctor`: load one plugin for real and write down what happens, step by step.

Every line is flushed before the next step begins, so that a crash is attributed to the step it happened in.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.installation.records import PluginState
from hermes_core.discovery.loader import load_plugins_tolerantly
from hermes_core.discovery.registry import Registry
from hermes_core.discovery.traces import brief_trace
from hermes_core.specs import ComponentSpec

HEAVY: Final = ("pydantic", "asyncio", "aiohttp", "rich", "jsonschema", "yaml", "openai", "transformers", "atroposlib")
"""Modules that cost more than a whole listing may; importing a plugin module must not bring them in."""


def main(plugin: str, settings: str, result: str) -> None:
    """Load the plugin with this id, then each of its components, and write JSON lines to the file `result`."""
    with Path(result).open("w", encoding="utf-8") as file:

        def write(**line: object) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        write(step="loading the plugin")
        before = set(sys.modules)
        registry = load_plugins_tolerantly(PluginSettings().with_config(json.loads(settings)), environ=os.environ)
        record = next(record for record in registry.plugins if record.id == plugin)
        heavy = [name for name in HEAVY if name in sys.modules and name not in before]
        write(plugin=record.to_json(), trace=record.trace, heavy=heavy)
        if record.state is PluginState.LOADED:
            for kind, spec in record.declared:
                _probe_component(registry, kind, f"{plugin}:{spec.name}", write)
        write(done=True)


def _probe_component(registry: Registry, kind: str, name: str, write: Callable[..., None]) -> None:
    write(step=f"importing {kind}:{name}")
    component = registry.component(kind, name)
    trace = ""
    if component.state == "declared" and isinstance(component.spec, ComponentSpec):
        try:
            registry.load(kind, name)
        except HermesError as error:
            trace = brief_trace(error.__cause__ or error)
    write(component=component.label, state=str(component.state), reason=component.reason, trace=trace)
