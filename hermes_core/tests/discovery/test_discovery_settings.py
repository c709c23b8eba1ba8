"""Plugin settings from the environment, the config and the command line."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import ConfigError
from hermes_core.discovery import PluginSettings

NAME = st.text("abc-:._", min_size=1, max_size=8)
NAMES = st.lists(NAME, unique=True, max_size=4).map(tuple)
SETTINGS = st.builds(
    PluginSettings,
    allow=st.none() | NAMES,
    disable=NAMES,
    extra=NAMES,
    prefer=st.dictionaries(NAME, NAME, max_size=3),
    strict=st.booleans(),
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, PluginSettings()),
        ({"HERMES_PLUGINS": ""}, PluginSettings(allow=())),
        ({"HERMES_PLUGINS": "a, b,a,"}, PluginSettings(allow=("a", "b"))),
        ({"HERMES_PLUGINS_DISABLE": "x"}, PluginSettings(disable=("x",))),
        ({"HERMES_PLUGINS_STRICT": "1"}, PluginSettings(strict=True)),
        ({"HERMES_PLUGINS_STRICT": " Off "}, PluginSettings(strict=False)),
    ],
)
def test_the_environment_is_read(environ, expected):
    assert PluginSettings.from_environment(environ) == expected


def test_a_switch_that_is_none_is_an_error():
    with pytest.raises(ConfigError, match="HERMES_PLUGINS_STRICT: expected 1 or 0, got 'maybe'"):
        PluginSettings.from_environment({"HERMES_PLUGINS_STRICT": "maybe"})


def test_command_line_options_add_and_leave_out():
    built = PluginSettings(disable=("x",)).with_options(["lab", "no:docker", "./mine.py", "no:x"])
    assert (built.extra, built.disable) == (("lab", "./mine.py"), ("x", "docker"))


def test_given_settings_lie_on_top_of_the_config():
    config = {"allow": ["a"], "disable": ["b"], "extra": ["c"], "prefer": {"k:n": "p", "k:m": "q"}, "strict": True}
    on_top = PluginSettings(allow=(), disable=("d",), prefer={"k:n": "mine"})
    merged = on_top.with_config(config)
    assert merged.allow == ()
    assert merged.disable == ("b", "d")
    assert merged.extra == ("c",)
    assert merged.prefer == {"k:n": "mine", "k:m": "q"}
    assert merged.strict is True


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"disabel": ["a"]}, "unknown key 'disabel' under 'plugins'\n.*did you mean 'disable'"),
        ({"disable": "docker"}, "'plugins.disable': expected a list of names, got 'docker'"),
        ({"allow": [1]}, "'plugins.allow': expected a list of names"),
        ({"prefer": ["x"]}, "'plugins.prefer': expected a mapping like"),
        ({"prefer": {"backend:docker": 3}}, "'plugins.prefer': expected a mapping like"),
        ({"strict": "yes"}, "'plugins.strict': expected true or false, got 'yes'"),
        ({"zzz": 1}, "known keys: allow, disable, extra, prefer, strict"),
    ],
)
def test_a_wrong_config_says_what_was_wanted_and_found(config, message):
    with pytest.raises(ConfigError, match=message):
        PluginSettings().with_config(config)


@settings(max_examples=40)
@given(SETTINGS)
def test_settings_cross_processes_unchanged(built):
    """A complaint about other plugin frameworks: workers did not see the plugins of their parent."""
    assert PluginSettings().with_config(built.to_json()) == built
    assert pickle.loads(pickle.dumps(built)) == built
