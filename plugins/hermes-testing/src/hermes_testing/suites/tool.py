"""The suite every tool passes."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from hermes_core.contracts.tool import ToolResult
from hermes_core.rollout import RolloutContext, Runtime
from hermes_core.specs import ToolSpec
from hermes_core.tooling import ArgumentsError, prepare_arguments
from hermes_testing.suites.rollouts import OpenRollout, RolloutBase
from hermes_testing.watching import longest_stall

if TYPE_CHECKING:
    from hermes_core.discovery import Registry

_NO_OBJECTS = ["not json", "{", "[1]", "3", '"text"', "null", '{"a": NaN}']
_MAPPING = {"neither": "text nor list"}
_WRONG = {"string": _MAPPING, "integer": "x", "number": "x", "boolean": "x", "array": _MAPPING, "object": "x"}


class ToolSuite(RolloutBase):
    """Behaviour of a tool, called as in a rollout: in a real sandbox, through a real context.

    Set `plugin`, `component` and `arguments` (a call that works after `prepare`); `failing` are calls that fail for
    outside reasons, such as a missing file, and still return a result to the model.
    """

    kind = "tool"
    arguments: ClassVar[Mapping[str, Any]] = {}
    failing: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @pytest_asyncio.fixture
    async def runtime(self, registry: Registry) -> AsyncIterator[Runtime]:
        """A runtime on the local backend; the tool has the suite's `options`, as a run's config would set them."""
        own = cast("ToolSpec", registry.spec("tool", self.component)), self.make(registry)
        async with Runtime(registry, find_tool=lambda name: own if name == self.component else None) as runtime:
            yield runtime

    def test_the_schema_is_a_json_schema(self, spec: ToolSpec) -> None:
        """Of type object, with every required argument declared and described."""
        schema = dict(spec.parameters)
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= set(schema.get("properties", {}))
        json.dumps(spec.openai_schema())

    def test_the_model_is_told_what_it_does(self, spec: ToolSpec) -> None:
        """There is a description, and the tool belongs to a toolset."""
        assert spec.description.strip()
        assert spec.toolset.strip()

    @pytest.mark.parametrize("text", _NO_OBJECTS)
    def test_arguments_that_are_no_object_are_answered(self, spec: ToolSpec, text: str) -> None:
        """With a text for the model, whatever it wrote."""
        with pytest.raises(ArgumentsError, match=r"\w"):
            prepare_arguments(spec, text)

    def test_missing_arguments_are_answered(self, spec: ToolSpec) -> None:
        """The text names the missing argument."""
        for name in spec.parameters.get("required", ()):
            rest = {key: value for key, value in self.arguments.items() if key != name}
            with pytest.raises(ArgumentsError, match=name):
                prepare_arguments(spec, json.dumps(rest))

    def test_arguments_of_the_wrong_type_are_answered(self, spec: ToolSpec) -> None:
        """For every argument with a type in the schema."""
        for name, schema in spec.parameters.get("properties", {}).items():
            if isinstance(schema, Mapping) and schema.get("type") in _WRONG:
                wrong = {**self.arguments, name: _WRONG[schema["type"]]}
                with pytest.raises(ArgumentsError, match=name):
                    prepare_arguments(spec, json.dumps(wrong))

    def test_the_example_s_arguments_are_accepted(self, spec: ToolSpec) -> None:
        """As the model would write them."""
        assert prepare_arguments(spec, json.dumps(dict(self.arguments))).items() >= self.arguments.items()

    async def test_it_answers_with_text(self, runtime: Runtime, context: RolloutContext) -> None:
        """A `ToolResult` with text that can be encoded as UTF-8, and without an error."""
        result = await self.call(runtime, context)
        assert isinstance(result, ToolResult)
        assert isinstance(result.content, str)
        assert result.content.encode()
        assert result.error is None

    async def test_failures_are_answered_too(self, runtime: Runtime, context: RolloutContext) -> None:
        """Failures outside the tool are results that the model can read, not exceptions."""
        for arguments in self.failing:
            result = await self.call(runtime, context, arguments)
            assert result.content.strip()

    async def test_rollouts_do_not_share_state(self, runtime: Runtime, rollout: OpenRollout) -> None:
        """A second rollout gets the same results as the first, and the shared object is unchanged."""
        tool = self.make(runtime.registry)
        before = repr(sorted(vars(tool).items())) if hasattr(tool, "__dict__") else ""
        answers = []
        for _ in range(2):
            async with rollout() as context:
                answers.append([await self._style(runtime, tool, context) for _ in range(2)])
        assert answers[0] == answers[1]
        assert (repr(sorted(vars(tool).items())) if hasattr(tool, "__dict__") else "") == before

    async def test_cancellation_is_passed_on(self, runtime: Runtime, context: RolloutContext) -> None:
        """At whatever point it comes; a tool that swallows it would keep a run from ending."""
        for steps in range(1, 12):
            call = asyncio.create_task(self.call(runtime, context))
            for _ in range(steps):
                await asyncio.sleep(0)
            if call.done():
                break
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    async def test_the_event_loop_keeps_ticking(
        self, runtime: Runtime, context: RolloutContext, rollout: OpenRollout
    ) -> None:
        """A blocking tool must not be `async def`: then it runs in a thread."""
        async with rollout() as other:
            await self.call(runtime, other)  # an import on first use does not count as a stall
        _, stall = await longest_stall(self.call(runtime, context))
        assert stall < 1.0, "the tool blocked the event loop"

    async def call(
        self, runtime: Runtime, context: RolloutContext, arguments: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Call the tool as the engine does, sync or async."""
        spec = runtime.registry.spec("tool", self.component)
        assert isinstance(spec, ToolSpec)
        text = json.dumps(dict(self.arguments if arguments is None else arguments))
        return await runtime.tool(self.component).invoke(prepare_arguments(spec, text), context)

    async def _style(self, runtime: Runtime, tool: Any, context: RolloutContext) -> ToolResult:
        from hermes_core.rollout import SyncToolContext

        arguments = dict(self.arguments)
        if inspect.iscoroutinefunction(tool.call):
            result: ToolResult = await tool.call(arguments, context)
            return result
        sync = SyncToolContext(context)
        return await runtime.workers.run("suite", lambda: tool.call(arguments, sync))
