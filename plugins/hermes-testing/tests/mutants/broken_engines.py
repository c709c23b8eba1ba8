"""The plugin of the broken engines: the name of each is that of its class."""

from __future__ import annotations

import importlib

from hermes_core.hookspecs import hookimpl
from hermes_core.specs import EngineSpec


@hookimpl
def hermes_engines():
    found = vars(importlib.import_module("engine_shapes")).items()
    shapes = [name for name, value in found if getattr(value, "is_broken", False) and not name.startswith("_")]
    targets = {"Desks": "desks:Desks", **{name: f"engine_shapes:{name}" for name in shapes}}
    return [EngineSpec(name=name, summary=name, target=target) for name, target in targets.items()]
