from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
# The targets of the local plugin are imported by module name, like those of a user's plugin in a folder on the path.
sys.path.insert(0, str(SUPPORT))


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Keep leases in a directory of this worker: the user's contains leases of others, which can be killed any time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def registry():
    """A registry with the packages under test and the tests' local plugin, without other installed plugins."""
    from hermes_core.discovery import PluginSettings, load_plugins

    settings = PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=("rollout_components",), strict=True)
    return load_plugins(settings, environ={})
