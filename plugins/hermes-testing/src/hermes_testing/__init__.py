"""Conformance suites for plugins of hermes-core: pytest classes to subclass, one per kind of component.

    from hermes_testing import BackendSuite

    class TestMyBackend(BackendSuite):
        plugin = "my_package.plugin"
        component = "my_backend"

Names are imported on first use, after pytest has been set to rewrite the suites' assertions.
"""

from __future__ import annotations

import pytest

from hermes_core.lazy import lazy_exports

# Must run before the suites are imported; otherwise a failing assertion would show no values.
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

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".registries": "isolated_registry",
            ".suites.backend.suite": "BackendSuite",
            ".suites.base": "needs",
            ".suites.engine.suite": "EngineSuite",
            ".suites.lease_store": "LeaseStoreSuite",
            ".suites.model": "ModelSuite",
            ".suites.parser.suite": "ParserSuite",
            ".suites.plugin": "PluginSuite",
            ".suites.service": "ServiceSuite",
            ".suites.tool": "ToolSuite",
            ".suites.verifier": "VerifierSuite",
        },
    )
