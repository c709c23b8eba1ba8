from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(SUPPORT))


@pytest.fixture(scope="session")
def registry():
    """Sandboxes, tools and the local plugin of the tests; nothing else that is installed."""
    from hermes_core.discovery import PluginSettings, load_plugins

    settings = PluginSettings(allow=("hermes-sandbox", "hermes-tools"), extra=("rollout_components",), strict=True)
    return load_plugins(settings, environ={})


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the import path into which a test installs throw-away distributions."""
    from throwaway_plugins import Site

    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder)


@pytest.fixture
def load(site):
    """Load the named plugins and nothing else that is installed: `load(*ids, **settings)`."""
    from hermes_core.discovery import PluginSettings, load_plugins

    def load(*names, environ=None, **settings):
        settings.setdefault("allow", names)
        return load_plugins(PluginSettings(**settings), environ={} if environ is None else environ)

    return load
