"""Messages for a name that cannot be resolved: what was expected, what was found, what to type next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError, HermesError, UnknownComponentError
from hermes_core.discovery.components.component import Component
from hermes_core.discovery.components.suggestions import known_names, package_for
from hermes_core.discovery.installation.records import PluginRecord, PluginState
from hermes_core.discovery.installation.selection import matches
from hermes_core.nearest import did_you_mean, nearest_names

_OUT_OF_ORDER: Final = {PluginState.FAILED, PluginState.INCOMPATIBLE, PluginState.BLOCKED}
_LIST: Final = "hermes-core plugins list --load --json"
_FEW: Final = 12


def ambiguous(kind: str, name: str, candidates: Sequence[Component]) -> AmbiguousComponentError:
    """Return an error that says who declares the name, and which config lines settle it."""
    ids = [component.plugin.id for component in candidates]
    distributions = [component.plugin.found.distribution for component in candidates]
    values = distributions if len(set(distributions)) == len(distributions) else ids
    bare = name.rpartition(":")[2]
    lines = "".join(f'\n      prefer: {{"{kind}:{bare}": "{value}"}}' for value in values)
    return AmbiguousComponentError(
        f"{kind} {name!r} is declared by {len(ids)} plugins: {', '.join(ids)}",
        hint=f"settle it with one of these under 'plugins:' in the config{lines}\n"
        f"    or write {values[0]}:{bare} in place of {bare}",
    )


def name_clash(given: Component, declared: Sequence[Component]) -> ConfigError:
    """Return an error for a given component whose name is declared already."""
    by = ", ".join(component.plugin.id for component in declared)
    found = f"{given.kind} {given.spec.name!r} of {given.plugin.id} has the name of one that {by} declares"
    other = declared[0].plugin
    leave_out = "" if other.found.is_local else f", or leave that plugin out: -p no:{other.id}"
    return ConfigError(found, hint=f"give it another name{leave_out}")


def conflict_text(component: str, plugins: Sequence[str]) -> str:
    """Return a line that says who declares a name, with a config line that settles it."""
    return f'declared by {", ".join(plugins)}; settle it: prefer: {{"{component}": "{plugins[0]}"}}, or another of them'


def missing_preference(kind: str, name: str, preferred: str, plugins: Iterable[PluginRecord]) -> ConfigError:
    """Return an error that says why the plugin that `prefer` names does not declare the component."""
    owner = preferred.rpartition(":")[0] or preferred
    states = [f"{p.id} is {_why(p)}" for p in plugins if matches(preferred, p.found) or matches(owner, p.found)]
    return ConfigError(
        f"'plugins.prefer' names {preferred!r} for {kind} {name!r}, which does not declare it ({'; '.join(states)})",
        hint=f"remove the line, or repair the plugin; see: hermes-core plugins show {owner}",
    )


def unknown(kind: str, name: str, known: Iterable[str], plugins: Iterable[PluginRecord]) -> UnknownComponentError:
    """Return an error with near matches, the package that has the component, and the plugins that did not load."""
    known = sorted(known)
    owner, _, bare = name.rpartition(":")
    out = [plugin for plugin in plugins if plugin.state in _OUT_OF_ORDER]
    # Of many names only the near ones help; the command lists them all.
    declared = ", ".join(known) or "none" if len(known) <= _FEW else f"{len(known)} names"
    found = f"no loaded plugin declares {kind} {name!r}; declared: {declared}"
    if owner and bare in known:
        found = f"{owner!r} declares no {kind} {bare!r}, but other plugins do"
    if out:
        lines = "".join(f"\n    {plugin.id} is {_why(plugin)}" for plugin in out)
        found += f"\n  it may belong to a plugin that is not loaded:{lines}"
    near = did_you_mean(bare.lower(), known, most=3)
    package = package_for(kind, bare)
    every = f"\n    all names: {_LIST}" if len(known) > _FEW else ""
    return UnknownComponentError(found, hint=_next_step(kind, bare, near, package, out) + every)


def no_answer(hook: str, refusals: Mapping[str, HermesError]) -> HermesError:
    """Return the error for a hook that every plugin refused to answer."""
    if len(refusals) == 1:
        return next(iter(refusals.values()))
    lines = "".join(f"\n    {plugin}: {error.message}" for plugin, error in refusals.items())
    return ConfigError(f"no plugin answers {hook}:{lines}", hint="disable those that are not meant: -p no:NAME")


def how_to_get(package: str, plugins: Iterable[PluginRecord]) -> str:
    """Return what to type to get a package's component: install it, admit it, or see why it is not loaded."""
    record = next((plugin for plugin in plugins if plugin.found.distribution == package), None)
    if record is None:
        return f"install the package that has it: pip install {package}"
    if record.state is not PluginState.BLOCKED:
        return f"{package} has it and is installed; see: hermes-core plugins show {package}"
    where = "HERMES_PLUGINS, or take it out of HERMES_PLUGINS_DISABLE; in a config: plugins.allow, plugins.disable"
    return f"{package} has it, and is {record.note}; admit {package} in {where}"


def _next_step(kind: str, name: str, near: str, package: str | None, out: Sequence[PluginRecord]) -> str:
    if package is not None and any(plugin.found.distribution == package for plugin in out):
        return how_to_get(package, out)
    if package is None and near:
        return near
    if package is None and (others := nearest_names(name, known_names(kind))):
        name, package = others[0], package_for(kind, others[0])
        return f"did you mean {name!r}? It is in {package}: pip install {package}"
    if package is not None:
        return how_to_get(package, out)
    return f"add the plugin that declares it with -p, or install it; what is installed: {_LIST}"


def _why(plugin: PluginRecord) -> str:
    return f"{plugin.state} ({plugin.note})" if plugin.note else str(plugin.state)
