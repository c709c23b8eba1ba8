"""The registry: every component of the loaded plugins, looked up by kind and name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from hermes_core.contracts.errors import AmbiguousComponentError, ConfigError, HermesError, UnavailableComponentError
from hermes_core.contracts.plugin_settings import PluginSettings
from hermes_core.discovery.components import factory, lookup_errors
from hermes_core.discovery.components.component import Component, ComponentState, Conflict
from hermes_core.discovery.events import EventDispatcher
from hermes_core.discovery.hooks import HookManager, call, observer_hooks
from hermes_core.discovery.installation.records import PluginRecord, PluginState, local_record
from hermes_core.discovery.installation.requirements import unmet_requirements
from hermes_core.discovery.installation.selection import matches
from hermes_core.discovery.kinds import KINDS, OPTION_PLACES, kind_named, kind_of
from hermes_core.discovery.traces import plugin_error
from hermes_core.specs import ComponentSpec, Ref

if TYPE_CHECKING:
    from hermes_core.discovery.components.component import EventProblem
    from hermes_core.specs import Declaration


class Registry:
    """The components of the plugins that one set of settings admits; built by `load_plugins`, passed on explicitly.

    A component's name is the bare one ("docker") or, if several plugins declare it, one with the plugin in front:
    "acme-docker:docker".
    """

    def __init__(
        self,
        records: Iterable[PluginRecord],
        manager: HookManager,
        *,
        settings: PluginSettings,
        environ: Mapping[str, str],
    ) -> None:
        self.settings = settings
        self.plugins: tuple[PluginRecord, ...] = tuple(records)
        self._environ = environ
        self._components: dict[str, dict[str, list[Component]]] = {kind: {} for kind in KINDS}
        loaded = [record for record in self.plugins if record.state is PluginState.LOADED]
        for record in loaded:
            for kind, spec in record.declared:
                self._components[kind].setdefault(spec.name, []).append(Component(kind=kind, spec=spec, plugin=record))
        self.event_hooks = manager.event_hooks()
        """The names of the hooks that receive an event."""
        self._observe({record.id: manager.implementations(record.id) for record in loaded})
        self._check_preferences()

    def has_settings(self, settings: PluginSettings, *, environ: Mapping[str, str]) -> bool:
        """Tell whether the registry was built with these settings, for requirements in this environment."""
        return (self.settings, self._environ) == (settings, environ)

    def _observe(self, hooks: Mapping[str, Mapping[str, Any]]) -> None:
        self._hooks = hooks
        self._events = EventDispatcher(self.event_hooks, hooks)
        self.fire: Callable[[str, object], None] = self._events.fire
        """`fire(hook_name, event)` sends an event to every plugin, each isolated; see `event_problems`."""
        self.listens: Callable[[str], bool] = self._events.listens
        """`listens(hook_name)` tells whether a plugin receives that event."""

    def with_component(self, spec: Declaration, target: object) -> Self:
        """Return this registry with one more component; `target` stands in for the object that `spec.target` names.

        `create` returns the object itself and takes no options for it; a class, a factory or anything else that can be
        called is called to build one. A name that is declared already is refused. The caller of `create` closes what
        it returns, as a `Runtime` closes its backend.
        """
        kind = kind_of(spec)
        given = Component(kind=kind, spec=spec, plugin=local_record(target), target=target)
        if declared := self._components[kind].get(spec.name):
            raise lookup_errors.name_clash(given, declared)
        extended = copy.copy(self)
        of_kind = {**self._components[kind], spec.name: [given]}
        extended._components = {**self._components, kind: of_kind}  # noqa: SLF001 - it is one of these
        extended.load(kind, spec.name)
        return extended

    def with_observer(self, name: str, observer: object) -> Self:
        """Return this registry with one observer more: an object whose methods are hooks of events, marked `@hookimpl`.

        `name` stands for it in `event_problems`. An object without such a method changes nothing.
        """
        if not (found := observer_hooks(name, observer)):
            return self
        if name in self._hooks:
            raise ConfigError(f"expected a name that no observer has, got {name!r}", hint="give each its own")
        extended = copy.copy(self)
        extended._observe({**self._hooks, name: found})  # noqa: SLF001 - it is one of these
        extended._events.problems.update(self._events.problems)  # noqa: SLF001 - as above
        return extended

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the bare names of a kind, sorted, ambiguous ones included."""
        return tuple(sorted(self._components[kind_named(kind).name]))

    def component(self, kind: str, name: str) -> Component:
        """Return the component that a name means, with its state; nothing is imported.

        Requirements are evaluated the first time only: a rollout's start must not read the installed metadata.
        """
        component = self._one(kind, name)
        if not component.is_checked:
            self._check_requirements(component)
        return component

    def spec(self, kind: str, name: str) -> Declaration:
        """Return a declaration; raises `UnknownComponentError` or `AmbiguousComponentError`."""
        return self._one(kind, name).spec

    def specs(self, kind: str) -> tuple[Declaration, ...]:
        """Return all declarations of a kind, sorted by name.

        An ambiguous name raises `AmbiguousComponentError`; use `names` and `spec` to handle each name separately.
        """
        return tuple(self._one(kind, name).spec for name in self.names(kind))

    def load(self, kind: str, name: str) -> Any:
        """Import a component's target, once per registry.

        Raises `UnavailableComponentError` when a requirement is missing, and `BrokenComponentError` when the import
        fails or the target does not satisfy its kind's contract.
        """
        component = self._one(kind, name)
        if component.state is ComponentState.READY:
            return component.target
        self._check_requirements(component)
        if component.state is ComponentState.UNAVAILABLE:
            raise UnavailableComponentError(
                f"{component.label} of {component.plugin.id} is installed but cannot be used here: {component.reason}",
                hint=f"see: hermes-core plugins show {component.label}",
            )
        return factory.load(component, KINDS[kind].protocol)

    def create(self, kind: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
        """Build a component from its options, which its own `Options` model validates; bad ones raise `ConfigError`.

        A component that contains others has the class attribute `takes_build = True`: its constructor then gets
        a function like this method as the keyword argument `build`.
        """
        return self._create(kind, name, options, place=OPTION_PLACES.get(kind, ""))

    def _create(self, kind: str, name: str, options: Mapping[str, Any] | None = None, *, place: str = "") -> Any:
        self.load(kind, name)
        # The options of a part are where its owner has them: it gets no place of its own.
        return factory.create(self._one(kind, name), options or {}, KINDS[kind].protocol, self._create, place)

    def parser_for(self, model_id: str, chat_template: str = "") -> str | None:
        """Ask every plugin which parser a model needs; None if none answers, an error if two disagree."""
        asked = (plugin for plugin, hooks in self._hooks.items() if "hermes_parser_for" in hooks)
        found = {plugin: self._parser_answer(plugin, model_id, chat_template) for plugin in asked}
        answers = {plugin: answer for plugin, answer in found.items() if answer is not None}
        if len(set(answers.values())) > 1:
            said = ", ".join(f"{plugin} says {parser!r}" for plugin, parser in answers.items())
            lines = " or ".join(f"tool_call_parser: {parser}" for parser in dict.fromkeys(answers.values()))
            raise AmbiguousComponentError(
                f"plugins disagree about the parser for model {model_id!r}: {said}",
                hint=f"settle it in the config: {lines}",
            )
        return next(iter(answers.values()), None)

    def answers(self, hook: str, **arguments: object) -> dict[str, Any]:
        """Call a hook of every plugin and return the answers that are not None, by the plugin's id.

        If none answers, the refusals are raised: the one `HermesError`, or a `ConfigError` with the
        texts of all. Any other exception is a defect of the plugin, and raised at once as `BrokenComponentError`.
        """
        found: dict[str, Any] = {}
        refusals: dict[str, HermesError] = {}
        for plugin, hooks in self._hooks.items():
            try:
                if hook in hooks and (answer := call(hooks[hook], **arguments)) is not None:
                    found[plugin] = answer
            except HermesError as error:
                refusals[plugin] = error
            except (Exception, SystemExit) as error:  # the plugin boundary
                raise plugin_error(hook, plugin, error) from error
        if refusals and not found:
            raise lookup_errors.no_answer(hook, refusals)
        return found

    def forward_events(self, fire: Callable[[str, object], None], *, listened: Iterable[str]) -> None:
        """Send the events of `listened` hooks to `fire` from now on, and none to this registry's plugins.

        For a worker that runs rollouts of a run in another process: the plugins of the run observe them.
        """
        wanted = frozenset(listened)
        self.fire = lambda hook, event: fire(hook, event) if hook in wanted else None
        self.listens = wanted.__contains__

    @property
    def event_problems(self) -> list[EventProblem]:
        """Failures of listeners: one counted entry per plugin, hook and kind ("raised" or "slow")."""
        return list(self._events.problems.values())

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The names that several plugins declare and no `prefer` line settles."""
        return tuple(
            Conflict(kind=kind, name=name, plugins=tuple(component.plugin.id for component in components))
            for kind, names in self._components.items()
            for name, components in sorted(names.items())
            if len(components) > 1 and f"{kind}:{name}" not in self.settings.prefer
        )

    def provenance(self, refs: Iterable[Ref | tuple[str, str]]) -> list[dict[str, Any]]:
        """Describe the code of the given components: one entry per plugin, the core always included."""
        from hermes_core.discovery.components.provenance import describe

        pairs = [(ref.kind, ref.name) if isinstance(ref, Ref) else ref for ref in refs]
        return describe([self._one(kind, name) for kind, name in pairs])

    def _one(self, kind: str, name: str) -> Component:
        candidates = self._candidates(kind, name)
        if len(candidates) > 1:
            raise lookup_errors.ambiguous(kind, name, candidates)
        return candidates[0]

    def _check_requirements(self, component: Component) -> None:
        component.is_checked = True
        if not isinstance(component.spec, ComponentSpec) or component.state is ComponentState.READY:
            return
        missing = unmet_requirements(component.spec.requires, self._environ)
        if missing:
            component.state, component.reason = ComponentState.UNAVAILABLE, "; ".join(missing)
        elif component.state is ComponentState.UNAVAILABLE:
            component.state, component.reason = ComponentState.DECLARED, ""

    def _candidates(self, kind: str, name: str) -> Sequence[Component]:
        plugin, _, bare = name.rpartition(":")
        candidates = self._components[kind_named(kind).name].get(bare, [])
        preferred = self.settings.prefer.get(f"{kind}:{bare}")
        if plugin:
            candidates = [c for c in candidates if matches(plugin, c.plugin.found)]
        elif preferred is not None and candidates:
            candidates = [c for c in candidates if _is_preferred(preferred, c)]
            if not candidates:
                raise lookup_errors.missing_preference(kind, bare, preferred, self.plugins)
        if not candidates:
            raise lookup_errors.unknown(kind, name, self._components[kind], self.plugins)
        return candidates

    def _check_preferences(self) -> None:
        for key, value in self.settings.prefer.items():
            kind, colon, name = key.partition(":")
            if not (colon and name):
                raise ConfigError(f"'plugins.prefer': expected a key like 'backend:docker', got {key!r}")
            kind_named(kind)
            owner = value.rpartition(":")[0]
            if not any(matches(value, one.found) or matches(owner, one.found) for one in self.plugins):
                known = ", ".join(record.id for record in self.plugins)
                raise ConfigError(
                    f"'plugins.prefer' names {value!r} for {key}, which is not installed", hint=f"known: {known}"
                )

    def _parser_answer(self, plugin: str, model_id: str, chat_template: str) -> str | None:
        hook = "hermes_parser_for"
        # The plugin boundary: a plugin that cannot answer must not keep the others from it.
        try:
            answer = call(self._hooks[plugin][hook], model_id=model_id, chat_template=chat_template)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - recorded, see above
            self._events.note(plugin, hook, "raised", f"{type(error).__name__}: {error}")
            return None
        if answer is None or isinstance(answer, str):
            return answer
        self._events.note(plugin, hook, "raised", f"expected a parser's name or None, got {answer!r:.100}")
        return None


def _is_preferred(value: str, component: Component) -> bool:
    plugin, _, name = value.rpartition(":")
    is_component = bool(plugin) and name == component.spec.name and matches(plugin, component.plugin.found)
    return is_component or matches(value, component.plugin.found)
