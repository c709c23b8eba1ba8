from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(SUPPORT))


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Leases go to a directory of this worker's own: the user's has those of others, who may be killed at any time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def registry():
    """The core's own plugin and the local one of the tests; nothing else that is installed."""
    from hermes_core.discovery import PluginSettings, load_plugins

    settings = PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=("rollout_components",), strict=True)
    return load_plugins(settings, environ={})
