"""The suite every plugin passes: its entry point, its module, its declarations."""

from __future__ import annotations

import importlib
import importlib.resources
import json
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from hermes_core.contracts.errors import UnavailableComponentError
from hermes_core.discovery import (
    KINDS,
    PluginSettings,
    PluginState,
    load_plugins,
    load_plugins_tolerantly,
    unreadable_requirements,
)
from hermes_core.specs import ComponentSpec, Declaration
from hermes_testing.registries import isolated_registry
from hermes_testing.suites.base import Suite

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

HEAVY = frozenset(
    {
        "aiohttp",
        "asyncio",
        "docker",
        "httpx",
        "jsonschema",
        "kubernetes",
        "modal",
        "numpy",
        "openai",
        "pandas",
        "paramiko",
        "pydantic",
        "pytest",
        "ray",
        "requests",
        "rich",
        "torch",
        "transformers",
        "vllm",
        "yaml",
    }
)
"""Modules that loading a plugin must not import: the cost of all installed plugins adds up at every start."""

_IMPORT = """
import importlib, json, sys
import hermes_core.hookspecs, hermes_core.specs
hooks, plugin = json.loads(sys.argv[1]), importlib.import_module(sys.argv[2])
declared = [spec for hook in hooks if hasattr(plugin, hook) for spec in getattr(plugin, hook)()]
targets = {getattr(spec, "target", ":").partition(":")[0] for spec in declared} - {"", plugin.__name__}
print(json.dumps({"modules": sorted(sys.modules), "targets": sorted(targets & sys.modules.keys())}))
"""


class PluginSuite(Suite):
    """Behaviour of a plugin as a whole.

    Set `plugin` to the module that the entry point names. With `distribution` set, it must be installed and the entry
    point (`entry_point`, if there are several) must resolve to that module. `may_import` exempts modules from `HEAVY`.
    """

    plugin: ClassVar[str]
    distribution: ClassVar[str | None] = None
    entry_point: ClassVar[str | None] = None
    may_import: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture
    def tolerant(self) -> Registry:
        """A registry of only this plugin, in which a failure is recorded."""
        return load_plugins_tolerantly(PluginSettings(allow=(), extra=(self.plugin,)), environ=os.environ)

    @pytest.fixture
    def installed_plugin(self) -> Any:
        """The record of the installed plugin, found as in a user's run."""
        if self.distribution is None:
            pytest.skip("no distribution is set, so the plugin is only a module")
        name = self.distribution if self.entry_point is None else f"{self.distribution}:{self.entry_point}"
        registry = load_plugins(PluginSettings(allow=(name,), strict=True))
        return next(record for record in registry.plugins if record.state is PluginState.LOADED)

    def test_the_entry_point_resolves_to_the_module(self, installed_plugin: Any) -> None:
        """In the group `hermes_core.plugins`; users write the name in filters."""
        assert installed_plugin.found.value == self.plugin

    def test_plugins_list_shows_it(self, installed_plugin: Any) -> None:
        """`hermes-core plugins list --json`, in a separate process, lists it."""
        code = "import sys; from hermes_core.cli import main; sys.exit(main(['plugins', 'list', '--json']))"
        listing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert json.dumps(installed_plugin.found.distribution) in json.dumps(json.loads(listing.stdout))

    def test_it_loads(self, tolerant: Registry) -> None:
        """Hook names, markers and arguments are right, no hook is a coroutine, every declaration is accepted."""
        record = self._record(tolerant)
        assert (str(record.state), record.note) == ("loaded", "")

    def test_it_loads_in_strict_mode_beside_the_core(self) -> None:
        """It uses none of the core's names."""
        registry = isolated_registry(self.plugin)
        assert registry.conflicts == ()

    def test_it_declares_something(self) -> None:
        """A plugin without a component or a listener has no use."""
        module = importlib.import_module(self.plugin)
        assert self._specs() or any(name.startswith("hermes_") for name in vars(module))

    def test_every_name_is_declared_once(self) -> None:
        """Per kind."""
        names = [(kind, spec.name) for kind, spec in self._specs()]
        assert sorted(set(names)) == sorted(names)

    def test_every_requirement_can_be_read(self) -> None:
        """`dist:NAME>=1`, `bin:PROGRAM` or `env:VARIABLE`."""
        requires = [item for _, spec in self._specs() if isinstance(spec, ComponentSpec) for item in spec.requires]
        assert unreadable_requirements(requires) == []

    def test_every_target_satisfies_its_contract(self, tolerant: Registry) -> None:
        """Imported by the real loader; targets without their requirements on this machine are skipped."""
        for kind, spec in self._record(tolerant).declared:
            if isinstance(spec, ComponentSpec):
                try:
                    assert tolerant.load(kind, spec.name) is not None
                except UnavailableComponentError:
                    continue

    def test_declarations_say_what_they_are(self) -> None:
        """One line each, for `plugins list`."""
        for _, spec in self._specs():
            assert spec.summary.strip()
            assert "\n" not in spec.summary

    def test_declarations_are_data(self) -> None:
        """They cross processes and enter logs, so they are picklable and JSON."""
        for _, spec in self._specs():
            assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - our own bytes
            assert json.loads(json.dumps(spec.to_json()))["name"] == spec.name

    def test_declaring_twice_gives_the_same(self) -> None:
        """Each registry calls the hooks again."""
        assert self._specs() == self._specs()

    def test_loading_it_imports_nothing_heavy(self) -> None:
        """In a new interpreter, with all hooks called."""
        modules = {name.partition(".")[0] for name in self._fresh_import()["modules"]}
        assert modules & (HEAVY - self.may_import) == set()

    def test_declaring_is_not_importing(self) -> None:
        """No target is imported before it is used."""
        assert self._fresh_import()["targets"] == []

    def test_it_is_typed(self) -> None:
        """The package ships `py.typed`."""
        package = self.plugin.partition(".")[0]
        assert importlib.resources.files(package).joinpath("py.typed").is_file()

    def _specs(self) -> list[tuple[str, Declaration]]:
        module = importlib.import_module(self.plugin)
        hooks = [(kind.name, getattr(module, kind.hook, None)) for kind in KINDS.values()]
        return [(kind, spec) for kind, hook in hooks if hook is not None for spec in hook()]

    def _record(self, registry: Registry) -> Any:
        return next(record for record in registry.plugins if record.found.value == self.plugin)

    def _fresh_import(self) -> dict[str, list[str]]:
        hooks = json.dumps([kind.hook for kind in KINDS.values()])
        command = [sys.executable, "-c", _IMPORT, hooks, self.plugin]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, list[str]] = json.loads(run.stdout.splitlines()[-1])
        return found
