"""Builds a sandbox that is served by a shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_core.contracts.sandbox import Sandbox
from hermes_sandbox.backend.hosts.host import SandboxHost
from hermes_sandbox.backend.shell_sandbox import ShellSandbox
from hermes_sandbox.posix_shell.client import ShellClient, ShellSettings
from hermes_sandbox.posix_shell.scripts import first_state
from hermes_sandbox.protocol.fd_limits import system_error
from hermes_sandbox.protocol.slots import SlotRequest

_SAME_USER = "commands are the same user as the shell that serves them"


def shell_sandbox(
    request: SlotRequest,
    host: SandboxHost,
    *,
    why: str,
    provenance: Mapping[str, Any],
    release: Callable[[Sandbox], Awaitable[None]],
) -> ShellSandbox:
    """Return a sandbox, not started yet, whose shell gets the same settings as an agent.

    Args:
        request: The sandbox's requirements.
        host: Its host.
        why: Why there is no agent, for the record.
        provenance: The other fields of the record.
        release: Removes the host.
    """
    fields = request.fields(host)
    identity = None if fields["uid"] is None else (fields["uid"], fields["gid"])
    weaker = [*provenance.get("weaker", ()), *([_SAME_USER] if identity is None else [])]
    state = _first_state(fields)

    async def connect(previous: ShellClient | None) -> ShellClient:
        try:
            stream = await (host.start_shell() if previous is None else host.restart_shell(previous))
            settings = _shell_settings(request, host, identity, fields)
            client = await ShellClient.connect(stream, settings, timeout=request.setup_timeout)
        except OSError as error:
            raise system_error("the shell cannot be started", error) from error
        await _begin_session(client, state, request)
        return client

    return ShellSandbox(
        sandbox_id=request.sandbox_id,
        host=host,
        spec=request.spec,
        provenance={**provenance, "weaker": weaker, "agent": "sh", "without_python": why},
        first_state=state,
        connect=connect,
        release=release,
    )


def _shell_settings(
    request: SlotRequest, host: SandboxHost, identity: tuple[int, int] | None, fields: Mapping[str, Any]
) -> ShellSettings:
    return ShellSettings(
        name=request.sandbox_id,
        folder=host.state_dir,
        identity=identity,
        file_size_mb=request.spec.file_size_mb,
        processes=fields["processes"] or None,
        shared_user=fields.get("shared_user", False),
        confine_sockets=request.hello()["confine_sockets"],
    )


def _first_state(fields: Mapping[str, Any]) -> bytes:
    directory = fields["workspace"] if fields["cwd"] is None else fields["cwd"]
    variables = {name: value for name, value in fields["env"].items() if value != "/bin/bash" or name != "SHELL"}
    return first_state({"SHELL": "/bin/sh", **variables}, directory)


async def _begin_session(client: ShellClient, state: bytes, request: SlotRequest) -> None:
    script = b"umask 077; cat >%s/u/state" % client.folder.encode()
    try:
        ran, stopped = await client.run(script, state, limit=1024, deadline=request.setup_timeout)
    except BaseException:
        await client.aclose()
        raise
    if ran.code or stopped:
        await client.aclose()
        raise OSError(ran.code, (ran.err.head + ran.err.tail).decode(errors="replace"))
