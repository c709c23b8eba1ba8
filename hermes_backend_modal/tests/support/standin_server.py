"""Both services on one port of loopback, in a process of its own: `python standin_server.py`.

The first line on standard output is its address. Each line of JSON on standard input is an order to itself (a fault, a
question), answered by a line. It ends, and every sandbox with it, at the end of its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from grpclib import GRPCError, Status
from grpclib.const import Handler
from grpclib.server import Server
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto import api_pb2
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase
from standin_bounds import prepare
from standin_control import Control
from standin_fields import KNOWN_FIELDS
from standin_router import Router
from standin_state import State

CALLS = {name for kind in (ModalClientBase, TaskCommandRouterBase) for name in kind.__abstractmethods__}
"""All that the SDK may call."""


def fields_of(message: Any, *, path: str = "", depth: int = 3) -> set[str]:
    """Return the paths of the fields that a message has set, down to those of its parts."""
    found = set()
    for field, value in message.ListFields():
        below = f"{path}.{field.name}".lstrip(".")
        is_part = field.message_type is not None and not field.message_type.GetOptions().map_entry
        if not is_part or depth == 1 or field.message_type.file.name.startswith("google/"):
            found.add(below)
            continue
        for part in value if field.is_repeated else [value]:
            found |= fields_of(part, path=below, depth=depth - 1) or {below}
    return found


class Service:
    """A service of the SDK's, answered by a plain object; what that does not have fails and is remembered."""

    def __init__(self, base: Any, answers: Any, state: State) -> None:
        unknown = dict.fromkeys(base.__abstractmethods__)
        self._mapping: Mapping[str, Handler] = type(base.__name__, (base,), unknown)().__mapping__()
        self._answers = answers
        self._state = state

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers by the path of their call."""
        return {path: handler._replace(func=self._handler(path)) for path, handler in self._mapping.items()}

    def _handler(self, path: str) -> Callable[[Any], Any]:
        name = path.rpartition("/")[2]
        answer = getattr(self._answers, name, None)

        async def handle(stream: Any) -> None:
            self._state.calls[name] += 1
            if answer is None:
                self._state.unknown.append(name)
                raise GRPCError(Status.UNIMPLEMENTED, f"the stand-in does not know {name}")
            caller = self._answers.login(stream.metadata)
            await self._state.faults.before(name)
            asked = await stream.recv_message()
            assert asked is not None
            if new := sorted(fields_of(asked) - KNOWN_FIELDS.get(name, frozenset())):
                self._state.unknown.append(f"{name} with {', '.join(new)}")
                raise GRPCError(Status.INVALID_ARGUMENT, f"the stand-in's {name} does not know {', '.join(new)}")
            if inspect.isasyncgenfunction(answer):
                async with contextlib.aclosing(answer(caller, asked)) as parts:
                    async for part in parts:
                        await stream.send_message(part)
            else:
                await stream.send_message(await answer(caller, asked))

        return handle


def order(state: State, asked: Mapping[str, Any]) -> Any:
    """Do what a test asks, and answer it."""
    faults = state.faults
    if (call := asked.get("call", "*")) not in {"*", "created", *CALLS}:
        raise ValueError(f"there is no call {call}")
    if asked["do"] == "fail":
        faults.fail.setdefault(asked["call"], []).extend([(asked["status"], asked["text"])] * asked["times"])
    elif asked["do"] == "slow":
        faults.slow[asked["call"]] = asked["seconds"]
    elif asked["do"] == "drop":
        faults.drop_output = asked["times"]
    elif asked["do"] == "end":
        state.sandboxes[asked["sandbox"]].end(asked["status"])
    elif asked["do"] == "age":
        state.sandboxes[asked["sandbox"]].created -= asked["seconds"]
    elif asked["do"] == "peak":
        state.most_at_once = 0
    elif asked["do"] == "well":
        faults.fail, faults.slow, faults.drop_output = {}, {}, 0
    elif asked["do"] == "forget":
        state.unknown.clear()
    elif asked["do"] != "tell":
        raise ValueError(f"there is no order {asked['do']}")
    return {
        "unknown": state.unknown,
        "apps": [name for _, _, name in state.apps],
        "calls": dict(state.calls),
        "most_at_once": state.most_at_once,
        "sandboxes": [_description(sandbox) for sandbox in state.sandboxes.values()],
    }


def _description(sandbox: Any) -> dict[str, Any]:
    definition = sandbox.definition
    return {
        "id": sandbox.id,
        "workspace": sandbox.workspace,
        "tags": sandbox.tags,
        "status": sandbox.status,
        "timeout": definition.timeout_secs,
        "idle_timeout": definition.idle_timeout_secs,
        "milli_cpu": [definition.resources.milli_cpu, definition.resources.milli_cpu_max],
        "memory_mb": [definition.resources.memory_mb, definition.resources.memory_mb_max],
        "image": definition.image_id,
        "gpu": definition.resources.gpu_config.gpu_type,
        "regions": list(definition.scheduler_placement.regions),
        "volumes": [mount.mount_path for mount in definition.volume_mounts],
        "exec_timeouts": sandbox.exec_timeouts,
        "network": definition.network_access.network_access_type,
    }


def say(line: str) -> None:
    """Write a line to whoever has started this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def serve() -> None:
    """Serve until the end of the input."""
    prepare()
    state = State()
    services = [Service(ModalClientBase, Control(state), state), Service(TaskCommandRouterBase, Router(state), state)]
    server = Server(services, status_details_codec=custom_detail_codec)
    await server.start("127.0.0.1", 0)
    listening: Any = server._server
    port = listening.sockets[0].getsockname()[1]
    state.url = f"http://127.0.0.1:{port}"
    say(state.url)

    async def expire() -> None:
        while True:
            await asyncio.sleep(0.05)
            state.expire()

    expiring = asyncio.create_task(expire())
    orders = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        say(json.dumps(order(state, json.loads(line))))
    expiring.cancel()
    for sandbox in state.sandboxes.values():
        sandbox.end(api_pb2.GenericResult.GENERIC_STATUS_TERMINATED)
    await asyncio.gather(*(sandbox.place.wait_for_removal() for sandbox in state.sandboxes.values()))
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
