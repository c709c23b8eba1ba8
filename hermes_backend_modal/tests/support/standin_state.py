"""The stand-in's state: workspaces by token, apps, images, sandboxes, and simulated faults."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2
from standin_places import Place

TOKENS = {"ak-one": "as-one", "ak-two": "as-two", "ak-one-more": "as-one-more"}
WORKSPACES = {"ak-one": "one", "ak-two": "two", "ak-one-more": "one"}
"""Whose a token is."""
ENVIRONMENTS = {"", "main"}
Result = api_pb2.GenericResult


def jwt(subject: str) -> str:
    """Return a token of the form that the SDK reads the end of its life from."""
    claims = json.dumps({"exp": time.time() + 3600, "sub": subject}).encode()
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b"{}", claims, b"signature"))


@dataclass
class Faults:
    """The next faults by call name: number of failures, error, and delay."""

    fail: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    drop_output: int = 0

    async def before(self, call: str) -> None:
        """Wait, or raise what is due."""
        await asyncio.sleep(self.slow.get(call, self.slow.get("*", 0.0)))
        if due := self.fail.get(call):
            status, text = due.pop(0)
            raise GRPCError(getattr(Status, status), text)


@dataclass
class Sandbox:
    """One sandbox and its request."""

    id: str
    workspace: str
    app: str
    tags: dict[str, str]
    definition: Any
    env: dict[str, str]
    lacks: frozenset[str]
    place: Place
    created: float = field(default_factory=time.time)
    status: int = 0
    busy: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    exec_timeouts: list[int] = field(default_factory=list)
    programs: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The id of its task."""
        return f"ta-{self.id[3:]}V"

    def end(self, status: int) -> None:
        """End it, with a reason."""
        if not self.status:
            self.status = status
            self.place.end()

    def result(self) -> Any:
        """Return how it has ended."""
        return Result(status=self.status, exitcode=137 if self.status else 0)


class State:
    """Everything, and the calls that were refused because nothing here knows them."""

    def __init__(self) -> None:
        self.url = ""
        self.faults = Faults()
        self.calls: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.apps: dict[tuple[str, str, str], str] = {}
        self.images: dict[str, Any] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.most_at_once = 0
        self.starting = 0

    def image(self, definition: Any) -> str:
        """Return the id of an image, the same for the same commands."""
        below = [self.images[base.image_id] for base in definition.base_images]
        commands = "\n".join([*below, *definition.dockerfile_commands])
        image_id = "im-" + hashlib.sha256(commands.encode() + definition.SerializeToString()).hexdigest()[:22]
        self.images[image_id] = commands
        return image_id

    def build(self, image_id: str) -> tuple[int, str]:
        """Return how the building of an image ends, and its log."""
        commands = self.images[image_id]
        if found := re.search(r"FROM (\S*missing\S*)", commands):
            return Result.GENERIC_STATUS_FAILURE, f"#1 pulling\nerror: manifest for {found[1]} not found\n"
        return Result.GENERIC_STATUS_SUCCESS, "#1 done\n"

    def create(self, workspace: str, request: Any, *, old: bool) -> Sandbox:
        """Make a sandbox."""
        definition = request.definition
        commands = self.images.get(definition.image_id)
        if commands is None:
            raise GRPCError(Status.NOT_FOUND, f"no image {definition.image_id}")
        env = dict(re.findall(r"ENV (\w+)=(\S+)", commands))
        env |= {"MODAL_TASK_ID": "secret-of-the-service", "PATH": env.get("PATH", "/usr/local/bin:/usr/bin:/bin")}
        for source in getattr(request, "secret_sources", []):
            env |= self.secrets[source.secret_id] if source.secret_id else dict(source.env.contents)
        for secret_id in definition.secret_ids:
            env |= self.secrets[secret_id]
        resources = definition.resources
        # 22 letters and digits are an identity of the older kind.
        name = "sb-" + (uuid.uuid4().hex[:22] if old else uuid.uuid4().hex)
        place = Place(
            name,
            network=definition.network_access.network_access_type == api_pb2.NetworkAccess.OPEN,
            memory=resources.memory_mb_max,
        )
        sandbox = Sandbox(
            id=name,
            workspace=workspace,
            app=request.app_id,
            tags={tag.tag_name: tag.tag_value for tag in request.tags},
            definition=definition,
            env=env,
            lacks=frozenset({"python3"} if "without-python" in commands else ()),
            place=place,
        )
        self.sandboxes[name] = sandbox
        place.ended.add_done_callback(
            lambda _: sandbox.end(
                Result.GENERIC_STATUS_KERNEL_OOM_KILL if place.out_of_memory else Result.GENERIC_STATUS_FAILURE
            )
        )
        return sandbox

    def expire(self) -> None:
        """End what has reached a time limit."""
        now = time.time()
        for sandbox in [sandbox for sandbox in self.sandboxes.values() if not sandbox.status]:
            idle = sandbox.definition.idle_timeout_secs
            if now - sandbox.created > sandbox.definition.timeout_secs:
                sandbox.end(Result.GENERIC_STATUS_TIMEOUT)
            elif idle and not sandbox.busy and time.monotonic() - sandbox.idle_since > idle:
                sandbox.end(Result.GENERIC_STATUS_IDLE_TIMEOUT)

    def find(self, workspace: str, sandbox_id: str) -> Sandbox:
        """Return a sandbox of a workspace."""
        found = self.sandboxes.get(sandbox_id)
        if found is None or found.workspace != workspace:
            raise GRPCError(Status.NOT_FOUND, f"no sandbox {sandbox_id}")
        return found
