"""A misspelt option is named with the nearest one of its own level, whatever kind of component it is for."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_core.discovery import PluginSettings, load_plugins

REGISTRY = load_plugins(PluginSettings(), environ={})
LOGIN = "host, port, user, key, passphrase, password, agent"


@pytest.mark.parametrize(
    ("kind", "name", "options", "said", "hint"),
    [
        ("backend", "docker", {"imag": "x"}, "has no option 'imag'", "did you mean 'image'? Known options: "),
        ("backend", "docker", {"equal": "docker_host"}, "has no option 'equal'", "known options: "),
        (
            "backend",
            "ssh",
            {"host": "far", "jump": [{"host": "near", "pasword": "1"}]},
            "unknown option 'jump.0.pasword'",
            f"did you mean 'password'? Known options of jump.0: {LOGIN}",
        ),
        (
            "backend",
            "pool",
            {"backends": [{"backend": "local", "equal": "x"}]},
            "unknown option 'backends.0.equal'",
            "known options of backends.0: backend, options",
        ),
        ("engine", "ray", {"worker": 1}, "has no option 'worker'", "did you mean 'workers'? Known options: "),
        ("parser", "hermes", {"promote_draft": 1}, "has no option 'promote_draft'", "did you mean 'promote_drafts'? "),
        ("verifier", "exit_code", {"comand": "x"}, "has no option 'comand'", "did you mean 'command'? Known options: "),
        (
            "verifier",
            "exit_code",
            {"checks": [{"command": "true", "wieght": 2}]},
            "unknown option 'checks.0.wieght'",
            "did you mean 'weight'? Known options of checks.0: ",
        ),
        (
            "verifier",
            "weighted",
            {"parts": [{"name": "exit_code", "option": {}}]},
            "unknown option 'parts.0.option'",
            "did you mean 'options'? Known options of parts.0: ",
        ),
    ],
)
def test_a_misspelt_option_is_named_with_the_nearest_one_of_its_own_level(kind, name, options, said, hint):
    with pytest.raises(ConfigError) as caught:
        REGISTRY.create(kind, name, options)
    assert said in caught.value.message
    assert str(caught.value.hint).startswith(hint)
    assert "(withheld)" not in str(caught.value)
