"""Import plugins and ask them what they declare, each isolated from the others."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.components.conformance import import_target
from hermes_core.discovery.hooks import BadPluginError, HookManager, IncompatiblePluginError, call
from hermes_core.discovery.installation.records import FoundPlugin, PluginRecord, PluginState
from hermes_core.discovery.installation.requirements import FORMS, unreadable_requirements
from hermes_core.discovery.installation.selection import find_plugins, is_asked_for
from hermes_core.discovery.kinds import KINDS, RESERVED, Kind
from hermes_core.discovery.registry import Registry
from hermes_core.discovery.traces import brief_trace
from hermes_core.specs import API_LEVEL, ComponentSpec

if TYPE_CHECKING:
    import pluggy

    from hermes_core.specs import Declaration


def load_plugins(
    settings: PluginSettings | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    loaded: Registry | None = None,
) -> Registry:
    """Build a registry; a plugin that fails is a record in it and a line in the log.

    Without `settings` they are read from the environment. `environ` is where requirements `env:NAME` are looked up, the
    process's own by default. A plugin named in `extra`, or any plugin with `strict`, must load: its failure raises
    `BrokenComponentError`. `loaded` is a registry that was built just now; if its settings and `environ` are these, it
    is used, and no plugin is looked for a second time.
    """
    environ = os.environ if environ is None else environ
    settings = PluginSettings.from_environment(environ) if settings is None else settings
    if loaded is not None and loaded.has_settings(settings, environ=environ):
        registry = loaded
    else:
        registry = load_plugins_tolerantly(settings, environ=environ)
    require_asked(registry)
    for record in registry.plugins:
        if record.state in {PluginState.FAILED, PluginState.INCOMPATIBLE}:
            _warn(record)
    return registry


def require_asked(registry: Registry) -> None:
    """Raise `BrokenComponentError` for a plugin that must load and did not: a requested one, or any with `strict`."""
    for record in registry.plugins:
        is_asked = is_asked_for(record.found, registry.settings)
        if record.state in {PluginState.FAILED, PluginState.INCOMPATIBLE} and (is_asked or registry.settings.strict):
            out = f"remove its -p; details: hermes-core -p {record.found.value}"
            if not record.found.is_local:
                out = f"leave it out with -p no:{record.id}; details: hermes-core"
            raise BrokenComponentError(
                f"the plugin {record.id} cannot be used: {record.note}", hint=f"repair it, or {out} plugins doctor"
            ) from record.error
        if is_asked and record.state is PluginState.BLOCKED:
            found = f"the plugin {record.id} was asked for, but is {record.note}"
            raise BrokenComponentError(found, hint="take it out of 'extra' (-p) or out of the disable-list")


def _warn(record: PluginRecord) -> None:
    import logging  # one line on stderr even if logging is not set up; imported only on failure

    message = "plugin %s is left out, %s: %s (details: hermes-core plugins doctor)"
    logging.getLogger(__name__).warning(message, record.id, record.state, record.note)


def load_plugins_tolerantly(settings: PluginSettings, *, environ: Mapping[str, str]) -> Registry:
    """Build a registry whatever fails; for commands that report failures."""
    manager = HookManager()
    found = find_plugins(settings)
    records = [_load(one.found, manager) if one.state is PluginState.FOUND else one for one in found]
    return Registry(records, manager, settings=settings, environ=environ)


def _load(plugin: FoundPlugin, manager: HookManager) -> PluginRecord:
    start = time.perf_counter()
    # The plugin boundary: a plugin may do anything here, sys.exit included, and must not take the others with it.
    try:
        module = _import(plugin)
        hooks, declared = _register(plugin, module, manager)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the one place that catches broadly, see above
        manager.unregister(name=plugin.id)
        return PluginRecord(
            found=plugin,
            state=PluginState.INCOMPATIBLE if isinstance(error, IncompatiblePluginError) else PluginState.FAILED,
            note=_describe(error),
            load_seconds=time.perf_counter() - start,
            error=error,
            trace=brief_trace(error),
        )
    return PluginRecord(
        found=plugin,
        state=PluginState.LOADED,
        note="" if hooks else "implements no hook",
        load_seconds=time.perf_counter() - start,
        hooks=hooks,
        declared=declared,
        module=module,
    )


def _import(plugin: FoundPlugin) -> object:
    if plugin.path is not None:
        return _import_file(plugin.name, plugin.path)
    return import_target(plugin.value.replace(" ", ""))


def _import_file(stem: str, path: str) -> ModuleType:
    # Unique per registry: two registries never share a local plugin's state.
    name = f"hermes_local_{''.join(c if c.isalnum() else '_' for c in stem)}_{os.urandom(4).hex()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadPluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _register(
    plugin: FoundPlugin, module: object, manager: HookManager
) -> tuple[tuple[str, ...], tuple[tuple[str, Declaration], ...]]:
    other = manager.get_name(module)
    if other is not None:
        raise BadPluginError(f"{plugin.value!r} is already loaded as {other}")
    manager.register(module, name=plugin.id)
    implementations = manager.implementations(plugin.id)
    declared = [
        (kind.name, spec)
        for kind in KINDS.values()
        if kind.hook in implementations
        for spec in _declarations(kind, implementations[kind.hook])
    ]
    return tuple(sorted(implementations)), tuple(declared)


def _declarations(kind: Kind, implementation: pluggy.HookImpl) -> Sequence[Declaration]:
    answer = call(implementation)
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes | Mapping):
        wanted = f"an iterable of {kind.spec.__name__}"
        raise BadPluginError(f"{kind.hook} must return {wanted}, got {type(answer).__name__}")
    declared: dict[str, Declaration] = {}
    for item in answer:
        spec = _check(kind, item)
        if spec.name in declared:
            raise BadPluginError(f"{kind.hook} declares {spec.name!r} twice")
        declared[spec.name] = spec
    return tuple(declared.values())


def _check(kind: Kind, item: object) -> Declaration:
    if not isinstance(item, kind.spec):
        raise BadPluginError(f"{kind.hook} must declare {kind.spec.__name__}, got {item!r:.200}")
    api: Any = item.api
    if not isinstance(api, int) or api < 1:
        raise BadPluginError(f"{kind.name} {item.name!r}: api: expected a positive whole number, got {api!r}")
    if api > API_LEVEL:
        raise IncompatiblePluginError(
            f"{kind.name} {item.name!r} is written for plugin interface {api}, this core has {API_LEVEL}: "
            f"upgrade hermes-agent-core, or install an older version of the plugin"
        )
    if isinstance(item, ComponentSpec) and (unreadable := unreadable_requirements(item.requires)):
        raise BadPluginError(f"{kind.name} {item.name!r} requires {unreadable[0]!r}; expected {FORMS}")
    if item.name in RESERVED.get(kind.name, ()):
        raise BadPluginError(f"{kind.name} {item.name!r} has a reserved name; choose another one")
    return item


def _describe(error: BaseException) -> str:
    if isinstance(error, BadPluginError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}) while it was loaded"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
