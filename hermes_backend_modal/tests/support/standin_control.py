"""The stand-in's control plane: the calls that sandboxes need, with the SDK's own messages; every other one fails."""

# ruff: noqa: N802 - the names of the calls

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb
from standin_state import ENVIRONMENTS, TOKENS, WORKSPACES, Sandbox, State, jwt


class Control:
    """Answers by the name of the call. `workspace` is whose token it carried."""

    def __init__(self, state: State) -> None:
        self.state = state

    def login(self, metadata: Any) -> str:
        """Return the workspace of a call, or refuse it."""
        name = metadata.get("x-modal-token-id", "")
        if TOKENS.get(name) != metadata.get("x-modal-token-secret", ""):
            raise GRPCError(Status.UNAUTHENTICATED, "Token validation failed: token ID and secret do not match")
        return WORKSPACES[name]

    async def WorkspaceNameLookup(self, workspace: str, _: Any) -> Any:
        """Name the workspace of a token."""
        return pb.WorkspaceNameLookupResponse(workspace_name=workspace, username=workspace)

    async def ClientHello(self, workspace: str, _: Any) -> Any:
        """Greet."""
        return pb.ClientHelloResponse()

    async def AuthTokenGet(self, workspace: str, _: Any) -> Any:
        """Give the token that calls about sandboxes carry."""
        return pb.AuthTokenGetResponse(token=jwt(workspace))

    async def EnvironmentGetOrCreate(self, workspace: str, asked: Any) -> Any:
        """Describe an environment."""
        self._known_environment(asked.deployment_name)
        settings = pb.EnvironmentSettings(image_builder_version="2025.06")
        return pb.EnvironmentGetOrCreateResponse(
            environment_id="en-1", metadata=pb.EnvironmentMetadata(name="main", settings=settings)
        )

    async def AppGetOrCreate(self, workspace: str, asked: Any) -> Any:
        """Find or make an app."""
        self._known_environment(asked.environment_name)
        key = (workspace, asked.environment_name or "main", asked.app_name)
        if key not in self.state.apps and asked.object_creation_type != pb.OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
            raise GRPCError(Status.NOT_FOUND, f"App '{asked.app_name}' not found in environment '{key[1]}'.")
        app = self.state.apps.setdefault(key, f"ap-{len(self.state.apps):022d}")
        return pb.AppGetOrCreateResponse(app_id=app, handle_metadata=pb.AppHandleMetadata(app_id=app))

    def _known_environment(self, name: str) -> None:
        if name not in ENVIRONMENTS:
            raise GRPCError(Status.NOT_FOUND, f"Environment '{name}' not found")

    async def SecretGetOrCreate(self, workspace: str, asked: Any) -> Any:
        """Find a secret by its name; only `wandb` is there."""
        if asked.deployment_name != "wandb":
            raise GRPCError(Status.NOT_FOUND, f"Secret '{asked.deployment_name}' not found")
        self.state.secrets["st-wandb"] = {"WANDB_API_KEY": "of-the-secret"}
        return pb.SecretGetOrCreateResponse(secret_id="st-wandb")

    async def VolumeGetOrCreate(self, workspace: str, asked: Any) -> Any:
        """Find a volume by its name; only `models` is there."""
        if asked.deployment_name != "models":
            raise GRPCError(Status.NOT_FOUND, f"Volume '{asked.deployment_name}' not found")
        return pb.VolumeGetOrCreateResponse(volume_id="vo-models", metadata=pb.VolumeMetadata(name="models"))

    async def ImageGetOrCreate(self, workspace: str, asked: Any) -> Any:
        """Take an image's definition; its building is watched by another call."""
        return pb.ImageGetOrCreateResponse(image_id=self.state.image(asked.image))

    async def ImageFromId(self, workspace: str, asked: Any) -> Any:
        """Find an image that was built before."""
        if asked.image_id not in self.state.images:
            raise GRPCError(Status.NOT_FOUND, f"Image '{asked.image_id}' not found")
        return pb.ImageFromIdResponse(image_id=asked.image_id, metadata=pb.ImageMetadata())

    async def ImageJoinStreaming(self, workspace: str, asked: Any) -> AsyncIterator[Any]:
        """Return the log of a building and how it ended."""
        status, log = self.state.build(asked.image_id)
        yield pb.ImageJoinStreamingResponse(task_logs=[pb.TaskLogs(data=log)], entry_id="1")
        yield pb.ImageJoinStreamingResponse(result=pb.GenericResult(status=status), eof=True)

    async def ImageBuildChainGet(self, workspace: str, asked: Any) -> Any:
        """Describe the one step that an image is built in."""
        step = pb.ImageBuildStep(image_id=asked.image_id, builder_app_id="ap-builder", builder_task_id=asked.image_id)
        step.started_at.GetCurrentTime()
        step.finished_at.GetCurrentTime()
        return pb.ImageBuildChainGetResponse(build_steps=[step])

    async def AppFetchLogs(self, workspace: str, asked: Any) -> Any:
        """Return the log of a step, in pieces."""
        _, log = self.state.build(asked.task_id)
        lines = [pb.TaskLogs(data=line) for line in log.splitlines(keepends=True)]
        return pb.AppFetchLogsResponse(batches=[pb.TaskLogsBatch(items=lines)])

    async def SandboxCreateV2(self, workspace: str, asked: Any) -> Any:
        """Make a sandbox."""
        sandbox = await self._create(workspace, asked, old=False)
        return pb.SandboxCreateV2Response(
            sandbox_id=sandbox.id,
            task_id=sandbox.task,
            metadata=pb.SandboxHandleMetadata(app_id=sandbox.app),
            command_router_access=self._access(sandbox),
        )

    async def SandboxCreate(self, workspace: str, asked: Any) -> Any:
        """Make one in the older way, which those with a GPU take."""
        sandbox = await self._create(workspace, asked, old=True)
        return pb.SandboxCreateResponse(sandbox_id=sandbox.id)

    async def _create(self, workspace: str, asked: Any, *, old: bool) -> Sandbox:
        self.state.starting += 1
        self.state.most_at_once = max(self.state.most_at_once, self.state.starting)
        try:
            sandbox = self.state.create(workspace, asked, old=old)
            # It is there from now on, heard or not.
            await self.state.faults.before("created")
            return sandbox
        finally:
            self.state.starting -= 1

    def _access(self, sandbox: Sandbox) -> Any:
        return pb.CommandRouterAccess(url=self.state.url, jwt=jwt(sandbox.id))

    async def SandboxGetCommandRouterAccess(self, workspace: str, asked: Any) -> Any:
        """Say where a sandbox is reached."""
        sandbox = self._running(workspace, asked.sandbox_id)
        access = self._access(sandbox)
        return pb.SandboxGetCommandRouterAccessResponse(url=access.url, jwt=access.jwt)

    async def TaskGetCommandRouterAccess(self, workspace: str, asked: Any) -> Any:
        """Say where an older one is reached."""
        sandbox = self._running(workspace, f"sb-{asked.task_id[3:-1]}")
        access = self._access(sandbox)
        return pb.TaskGetCommandRouterAccessResponse(url=access.url, jwt=access.jwt)

    def _running(self, workspace: str, sandbox_id: str) -> Sandbox:
        sandbox = self.state.find(workspace, sandbox_id)
        if sandbox.status:
            raise GRPCError(Status.FAILED_PRECONDITION, f"Sandbox {sandbox_id} has already finished")
        return sandbox

    async def SandboxGetTaskId(self, workspace: str, asked: Any) -> Any:
        """Name the task of a sandbox."""
        sandbox = self.state.find(workspace, asked.sandbox_id)
        if sandbox.status:
            return pb.SandboxGetTaskIdResponse(task_result=sandbox.result())
        return pb.SandboxGetTaskIdResponse(task_id=sandbox.task)

    async def SandboxWaitV2(self, workspace: str, asked: Any) -> Any:
        """Wait for the end of a sandbox."""
        sandbox = self.state.find(workspace, asked.sandbox_id)
        if not sandbox.status and asked.timeout:
            await asyncio.wait([sandbox.place.ended], timeout=asked.timeout)
        result = sandbox.result() if sandbox.status else pb.GenericResult()
        return pb.SandboxWaitResponse(result=result, metadata=pb.SandboxHandleMetadata(app_id=sandbox.app))

    async def SandboxTerminateV2(self, workspace: str, asked: Any) -> Any:
        """End a sandbox; one that has ended is fine."""
        self.state.find(workspace, asked.sandbox_id).end(pb.GenericResult.GENERIC_STATUS_TERMINATED)
        return pb.SandboxTerminateResponse()

    async def SandboxListV2(self, workspace: str, asked: Any) -> Any:
        """List the running sandboxes of an app with these tags, newest first, two at a time."""
        wanted = {tag.tag_name: tag.tag_value for tag in asked.tags}
        before = asked.before_timestamp or float("inf")
        found = [
            sandbox
            for sandbox in self.state.sandboxes.values()
            if sandbox.workspace == workspace
            and sandbox.app == asked.app_id
            and not sandbox.status
            and wanted.items() <= sandbox.tags.items()
            and sandbox.created < before
        ]
        found.sort(key=lambda sandbox: -sandbox.created)
        return pb.SandboxListResponse(
            sandboxes=[
                pb.SandboxInfo(
                    id=sandbox.id,
                    created_at=sandbox.created,
                    app_id=sandbox.app,
                    metadata=pb.SandboxHandleMetadata(app_id=sandbox.app),
                    tags=_tags(sandbox),
                )
                for sandbox in found[:2]
            ]
        )

    async def SandboxTagsGetV2(self, workspace: str, asked: Any) -> Any:
        """Return the tags of a sandbox."""
        return pb.SandboxTagsGetResponse(tags=_tags(self.state.find(workspace, asked.sandbox_id)))

    SandboxGetTaskIdV2 = SandboxGetTaskId
    SandboxWait = SandboxWaitV2
    SandboxTerminate = SandboxTerminateV2
    SandboxTagsGet = SandboxTagsGetV2


def _tags(sandbox: Sandbox) -> list[Any]:
    return [pb.SandboxTag(tag_name=name, tag_value=value) for name, value in sandbox.tags.items()]
