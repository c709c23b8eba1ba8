"""Conformance suites for plugins of hermes-core: pytest classes to subclass, one per kind of component.

    from hermes_testing import BackendSuite

    class TestMyBackend(BackendSuite):
        plugin = "my_package.plugin"
        component = "my_backend"

Names are imported on first use, after pytest was told to rewrite the suites' assertions.
"""

from __future__ import annotations

import pytest

# Must come before the suites are imported, or a failing assertion would show no values.
pytest.register_assert_rewrite("hermes_testing.suites")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_testing.registries import isolated_registry
    from hermes_testing.suites.backend.suite import BackendSuite
    from hermes_testing.suites.base import needs
    from hermes_testing.suites.engine.suite import EngineSuite
    from hermes_testing.suites.lease_store import LeaseStoreSuite
    from hermes_testing.suites.model import ModelSuite
    from hermes_testing.suites.parser.suite import ParserSuite
    from hermes_testing.suites.plugin import PluginSuite
    from hermes_testing.suites.service import ServiceSuite
    from hermes_testing.suites.tool import ToolSuite
    from hermes_testing.suites.verifier import VerifierSuite

_HOMES = {
    "BackendSuite": "suites.backend.suite",
    "EngineSuite": "suites.engine.suite",
    "LeaseStoreSuite": "suites.lease_store",
    "ModelSuite": "suites.model",
    "ParserSuite": "suites.parser.suite",
    "PluginSuite": "suites.plugin",
    "ServiceSuite": "suites.service",
    "ToolSuite": "suites.tool",
    "VerifierSuite": "suites.verifier",
    "isolated_registry": "registries",
    "needs": "suites.base",
}

__all__ = [
    "BackendSuite",
    "EngineSuite",
    "LeaseStoreSuite",
    "ModelSuite",
    "ParserSuite",
    "PluginSuite",
    "ServiceSuite",
    "ToolSuite",
    "VerifierSuite",
    "isolated_registry",
    "needs",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_testing' has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"hermes_testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
