"""Tools that no plugin brings, as a runtime finds them."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import UnknownComponentError
from hermes_core.contracts.tool import ToolResult
from hermes_core.rollout import Runtime
from hermes_core.rollout.plugin_calls.context import RolloutContext
from hermes_core.specs import ToolSpec

NONE = {"type": "object", "properties": {}}


class Echo:
    async def call(self, arguments, context):
        return ToolResult(content="mine")


async def test_a_runtime_asks_for_a_tool_of_its_own_before_the_plugins_when_it_is_first_used(registry):
    described = ToolSpec(name="noop", summary="", target="no.such:Echo", toolset="own", description="", parameters=NONE)
    own = {}
    async with Runtime(registry, find_tool=own.get) as runtime:
        assert runtime.tool("boom").spec == registry.spec("tool", "boom")
        own |= {"noop": (described, Echo()), "boom": (described, Echo())}
        context = RolloutContext(runtime, rollout_id="r", sandbox=None)
        assert runtime.tool("noop").spec is described
        assert await context.call_tool("noop", {}) == "mine"
        assert runtime.tool("boom").spec == registry.spec("tool", "boom")
        with pytest.raises(UnknownComponentError):
            runtime.tool("missing")
