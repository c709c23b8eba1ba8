from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(SUPPORT))


@pytest.fixture(scope="session")
def registry():
    """The core's own plugin and the local one of the tests; nothing else that is installed."""
    from hermes_core.discovery import PluginSettings, load_plugins

    settings = PluginSettings(
        allow=("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-runner"),
        extra=("rollout_components",),
        strict=True,
    )
    return load_plugins(settings, environ={})
