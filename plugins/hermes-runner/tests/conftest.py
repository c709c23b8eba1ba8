from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(SUPPORT))


@pytest.fixture(scope="session")
def registry():
    """A registry with the packages that the tests need and their local plugin, and no other installed plugin."""
    from hermes_core.discovery import PluginSettings, load_plugins

    settings = PluginSettings(
        allow=("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-runner"),
        extra=("rollout_components",),
        strict=True,
    )
    return load_plugins(settings, environ={})


@pytest.fixture
async def slow_sink():
    """A sink whose writes wait until the test ends, or releases them."""
    from noting_sinks import SlowSink

    sink = SlowSink()
    yield sink
    sink.release.set()
