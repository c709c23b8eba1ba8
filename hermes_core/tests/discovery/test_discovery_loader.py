"""Loading plugins from real installed metadata: states, isolation, and what a plugin may not do."""

from __future__ import annotations

import sys

import pytest
from throwaway_plugins import backend, verifier

from hermes_core.contracts.errors import BrokenComponentError
from hermes_core.discovery import PluginSettings, PluginState, load_plugins
from hermes_core.discovery.loader import load_plugins_tolerantly


def only(registry, plugin):
    return next(record for record in registry.plugins if record.id == plugin)


def states(registry):
    return {record.id: str(record.state) for record in registry.plugins if record.state != "blocked"}


def test_an_installed_plugin_is_loaded_without_its_targets(site, load):
    plugin = site.install("acme-docker", backend(target="nowhere.to.be.found:Backend"))
    record = only(load(plugin), plugin)
    assert record.state is PluginState.LOADED
    assert record.hooks == ("hermes_backends",)
    assert record.load_seconds > 0
    assert [f"{kind}:{spec.name}" for kind, spec in record.declared] == ["backend:docker"]


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("import no_such_package_anywhere", "ModuleNotFoundError: No module named 'no_such_package_anywhere'"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import sys; sys.exit(3)", "it called sys.exit(3)"),
        ("def (", "SyntaxError"),
        ("@hookimpl\ndef hermes_tools():\n    raise ValueError('no')", "ValueError: no"),
        ("@hookimpl\ndef hermes_tools():\n    import sys; sys.exit()", "sys.exit(None)"),
        (
            "@hookimpl\ndef hermes_toolz():\n    return []",
            "did you mean 'hermes_tools'",
        ),
        ("@hookimpl\nasync def hermes_tools():\n    return []", "coroutine function; hooks are called synchronously"),
        ("@hookimpl\nasync def hermes_rollout_started(event):\n    pass", "coroutine function"),
        ("@hookimpl\nasync def hermes_tools():\n    yield 1", "coroutine function"),
        ("async def f(): ...\n@hookimpl\ndef hermes_tools():\n    return f()", "returned an awaitable"),
        (
            "@hookimpl\ndef hermes_tools(color):\n    return []",
            "hook hermes_tools has no argument 'color'; known arguments: none",
        ),
        ("@hookimpl(wrapper=True)\ndef hermes_tools():\n    return (yield)", "is a wrapper"),
        ("def hermes_tools():\n    return []", "hermes_tools is not marked"),
        ("@hookimpl\ndef hermes_tools():\n    pass", "must return an iterable of ToolSpec, got NoneType"),
        ("@hookimpl\ndef hermes_tools():\n    return 'terminal'", "iterable of ToolSpec, got str"),
        ("@hookimpl\ndef hermes_tools():\n    return ['terminal']", "must declare ToolSpec, got 'terminal'"),
        (
            "@hookimpl\ndef hermes_tools():\n    return [ParserSpec(name='p', summary='', target='a:b')]",
            "hermes_tools must declare ToolSpec, got ParserSpec",
        ),
        (
            "@hookimpl\ndef hermes_sinks():\n    return [SinkSpec(name='s', summary='', target='a.b')]",
            "expected a target",
        ),
        (
            "@hookimpl\ndef hermes_sinks():\n    return 2 * [SinkSpec(name='s', summary='', target='a:b')]",
            "hermes_sinks declares 's' twice",
        ),
        (
            (
                "@hookimpl\ndef hermes_sinks():\n"
                "    return [SinkSpec(name='s', summary='', target='a:b', requires=('x',))]"
            ),
            "requires 'x'; expected dist:NAME",
        ),
        (
            "@hookimpl\ndef hermes_sinks():\n    return [SinkSpec(name='s', summary='', target='a:b', api='1')]",
            "api: expected a positive whole number",
        ),
        (
            "@hookimpl\ndef hermes_cli_commands():\n    return [CommandSpec(name='plugins', summary='', target='a:b')]",
            "cli_command 'plugins' has a reserved name",
        ),
        (
            "@hookimpl\ndef hermes_toolsets():\n    return [ToolsetSpec(name='all', summary='')]",
            "toolset 'all' has a reserved name",
        ),
    ],
)
def test_a_broken_plugin_is_a_record_and_the_others_still_work(site, load, source, note):
    """In other frameworks: one broken plugin kills the tool; typos are silent; async hooks are not awaited."""
    broken = site.install("a-broken", source)
    good = site.install("z-good", backend())
    registry = load(broken, good)
    record = only(registry, broken)
    assert record.state is PluginState.FAILED
    assert note in record.note
    assert record.error is not None
    assert record.hooks == ()
    assert registry.names("backend") == ("docker",)
    assert registry.names("sink") == ()


def test_the_traceback_is_kept_and_shows_the_authors_line_only(site, load):
    plugin = site.install("acme-x", "def grow():\n    raise RuntimeError('boom')\ngrow()")
    trace = only(load(plugin), plugin).trace
    assert "in grow" in trace
    assert "importlib" not in trace
    assert "discovery/loader.py" not in trace


def test_a_plugin_for_a_later_interface_is_incompatible(site, load):
    plugin = site.install("acme-late", verifier(api=2))
    record = only(load(plugin), plugin)
    assert record.state is PluginState.INCOMPATIBLE
    assert "plugin interface 2, this core has 1" in record.note
    assert load(plugin).names("verifier") == ()


def test_ctrl_c_during_an_import_is_not_caught(site, load):
    plugin = site.install("acme-slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load(plugin)


def test_a_failed_plugin_listens_to_nothing(site, load):
    """A plugin is unregistered as a whole: a half-registered one would still receive events."""
    plugin = site.install(
        "acme-half",
        """
        seen = []
        @hookimpl
        def hermes_rollout_started(event):
            seen.append(event)
        @hookimpl
        def hermes_tools():
            raise ValueError
        """,
    )
    registry = load(plugin)
    registry.fire("hermes_rollout_started", object())
    assert sys.modules[site.module("acme_half")].seen == []


def test_strict_makes_any_failure_fatal(site, load):
    plugin = site.install("acme-broken", "raise RuntimeError('boom')")
    with pytest.raises(BrokenComponentError, match=r"acme-broken:broken cannot be used: RuntimeError: boom") as caught:
        load(plugin, strict=True)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_plugin_that_is_left_out_is_one_line_in_the_log(site, load, caplog):
    """A complaint about other plugin frameworks: the opposite of a crash, an import error that was swallowed."""
    plugin = site.install("acme-broken", "raise RuntimeError('boom')")
    load(plugin, site.install("acme-good"))
    (line,) = caplog.messages
    assert line.startswith("plugin acme-broken:broken is left out, failed: RuntimeError: boom")


def test_declarations_may_come_from_a_generator_and_a_subset_of_arguments(site, load):
    plugin = site.install(
        "acme-gen",
        """
        @hookimpl
        def hermes_sinks():
            yield SinkSpec(name="s", summary="", target="a:b")
        @hookimpl
        def hermes_parser_for():
            return "hermes"
        """,
    )
    registry = load(plugin)
    assert registry.names("sink") == ("s",)
    assert registry.parser_for("any") == "hermes"


def test_loading_twice_gives_two_equal_registries_that_share_nothing(site, load):
    """hermes-agent's defect: configuration and registries were global to the process."""
    site.install("acme-docker", backend())
    site.install("other-docker", backend())
    one, two = load("acme-docker"), load("other-docker")
    again = load("acme-docker")
    assert one.component("backend", "docker").plugin.id == "acme-docker:docker"
    assert two.component("backend", "docker").plugin.id == "other-docker:docker"
    assert one.load("backend", "docker") is not two.load("backend", "docker")
    assert states(one) == states(again)
    one.fire("hermes_rollout_started", None)
    assert one.component("backend", "docker").state == "ready"
    assert again.component("backend", "docker").state == "declared"


def test_plugins_are_sorted_by_distribution_and_name_whatever_order_they_lie_in(site, load):
    """A complaint about other plugin frameworks: the order of hooks was that of the file system."""
    ids = [site.install(name) for name in ("zeta-b", "alpha-z", "mid-c")]
    assert list(states(load(*ids))) == ["alpha-z:z", "mid-c:c", "zeta-b:b"]


def test_the_same_module_from_two_distributions_loads_once_and_says_so(site, load):
    first = site.install("acme-one", backend())
    site.metadata("acme-two", {"two": site.module("acme_one")})
    registry = load(first, "acme-two:two")
    assert states(registry) == {"acme-one:one": "loaded", "acme-two:two": "failed"}
    assert "already loaded as acme-one:one" in only(registry, "acme-two:two").note


def test_an_entry_point_may_name_an_object_of_a_module(site, load):
    module = site.write(
        "objects",
        """
        from hermes_core import hookimpl
        class Plugin:
            @hookimpl
            def hermes_parser_for(self, model_id):
                return model_id
        plugin = Plugin()
        """,
    )
    site.metadata("acme-object", {"object": f"{module}:plugin"})
    assert load("acme-object").parser_for("m") == "m"


def test_settings_come_from_the_environment_when_none_are_given(site):
    site.install("acme-docker", backend())
    registry = load_plugins(environ={"HERMES_PLUGINS": "acme-docker"})
    assert states(registry) == {"acme-docker:docker": "loaded"}
    assert load_plugins(PluginSettings(allow=()), environ={"HERMES_PLUGINS": "acme-docker"}).names("backend") == ()


def test_one_plugin_may_bring_every_kind_and_observe_every_event(site, load):
    plugin = site.install(
        "acme-all",
        """
        seen = []
        def fields(name):
            return {"name": name, "summary": "", "target": "a:b"}
        @hookimpl
        def hermes_tools():
            return [ToolSpec(**fields("t"), toolset="x", description="", parameters={"type": "object"})]
        @hookimpl
        def hermes_backends():
            return [BackendSpec(**fields("b"))]
        @hookimpl
        def hermes_parsers():
            return [ParserSpec(**fields("p"))]
        @hookimpl
        def hermes_verifiers():
            return [VerifierSpec(**fields("v"))]
        @hookimpl
        def hermes_toolsets():
            return [ToolsetSpec(name="x", summary="")]
        @hookimpl
        def hermes_toolset_distributions():
            return [ToolsetDistributionSpec(name="d", summary="", percentages={"x": 50})]
        @hookimpl
        def hermes_task_sources():
            return [TaskSourceSpec(**fields("s"))]
        @hookimpl
        def hermes_sinks():
            return [SinkSpec(**fields("k"))]
        @hookimpl
        def hermes_cli_commands():
            return [CommandSpec(**fields("c"))]
        @hookimpl
        def hermes_rollout_started(event):
            seen.append(event)
        @hookimpl
        def hermes_tool_called(event):
            seen.append(event)
        @hookimpl
        def hermes_rollout_scored(event):
            seen.append(event)
        @hookimpl
        def hermes_rollout_finished(event):
            seen.append(event)
        """,
    )
    registry = load(plugin)
    kinds = ("tool", "backend", "parser", "verifier", "toolset", "toolset_distribution", "task_source", "sink")
    assert [registry.names(kind) for kind in kinds] == [(name,) for name in "tbpvxdsk"]
    assert registry.names("cli_command") == ("c",)
    events = ("hermes_rollout_started", "hermes_tool_called", "hermes_rollout_scored", "hermes_rollout_finished")
    for event in events:
        registry.fire(event, event)
    assert tuple(sys.modules[site.module("acme_all")].seen) == events


def test_a_registry_that_was_built_just_now_is_used_only_for_the_same_settings(site):
    site.install("acme-docker", backend())
    settings, environ = PluginSettings(allow=("acme-docker",)), {"TOKEN": "t"}
    first = load_plugins(settings, environ=environ)
    assert load_plugins(settings, environ=dict(environ), loaded=first) is first
    others = PluginSettings(allow=("acme-docker",), disable=("acme-docker",))
    assert load_plugins(others, environ=environ, loaded=first).names("backend") == ()
    assert load_plugins(settings, environ={}, loaded=first) is not first


def test_a_registry_that_was_built_tolerantly_is_refused_all_the_same(site):
    plugin = site.install("acme-docker", "raise RuntimeError('boom')")
    settings = PluginSettings(allow=("acme-docker",), strict=True)
    tolerant = load_plugins_tolerantly(settings, environ={})
    with pytest.raises(BrokenComponentError, match=plugin):
        load_plugins(settings, environ={}, loaded=tolerant)
