"""A model that follows a script, and the spec of a rollout for it."""

from __future__ import annotations

from hermes_core.contracts.model import ModelReply, RequestedCall, Usage
from hermes_core.contracts.task import Task
from hermes_core.rollout import GroupPlan, RolloutLimits, RolloutSpec
from hermes_core.specs import Ref
from hermes_core.tooling.selection import select_tools


def call(name, arguments="{}", call_id=None):
    return RequestedCall(id=call_id or f"c_{name}", name=name, arguments=arguments)


def calls(*items, tokens=5):
    usage = Usage(prompt_tokens=10, completion_tokens=tokens)
    return ModelReply(content=None, tool_calls=items, finish_reason="tool_calls", usage=usage)


def says(text, **fields):
    return ModelReply(content=text, **fields)


class Script:
    """A model that gives replies in order; an exception in the list is raised."""

    provenance = {"protocol": "script"}  # noqa: RUF012 - never changed

    def __init__(self, *replies):
        self._replies = list(replies)
        self.requests = []

    async def check(self):
        return None

    async def chat(self, request):
        self.requests.append(request.conversation.messages[-1])
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            return await reply()
        return reply

    async def aclose(self):
        return None


def spec_for(registry, *, tools=("testing",), verifier=None, limits=None, rollout_id="r1", **task_fields):
    messages = ({"role": "user", "content": "do it"},)
    ref = None if verifier is None else Ref(kind="verifier", name=verifier)
    task = Task(id="t1", messages=messages, verifier=ref, **task_fields)
    selected = select_tools(registry, enabled_toolsets=list(tools))
    group = GroupPlan(group_id="g1", task=task, tools=selected)
    return RolloutSpec(rollout_id=rollout_id, group=group, limits=limits or RolloutLimits())
