"""Starts an agent inside its limits: they apply before its first instruction, so nothing can escape them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hermes_core.cancellation import run_uncancelled
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.protocol.agent_process import AgentProcess
from hermes_sandbox.protocol.fd_limits import system_error


async def start_confined(
    argv: Sequence[str],
    *,
    group: Group | None,
    address_space: int | None = None,
    environment: Mapping[str, str],
    bash: str,
    uid: int | None = None,
    pass_fds: Sequence[int] = (),
) -> AgentProcess:
    """Start a program that waits until it has been put into the group."""
    try:
        reader, writer = os.pipe()
    except OSError as error:
        raise system_error(f"{argv[0]} cannot be started", error) from error
    try:
        gate = [bash, "--noprofile", "--norc", "-c", _gate(reader, address_space), "hermes-gate", *argv]
        agent = await AgentProcess.start(gate, environment=environment, uid=uid, pass_fds=(reader, *pass_fds))
        try:
            if group is not None:
                group.add(agent.pid)
            os.write(writer, b"\n")
        except OSError as error:
            # It was not let in, so it is only this one process.
            agent.stream.writer.transport.abort()
            await run_uncancelled(agent.end(0.0))
            raise system_error("the sandbox's control group cannot be entered", error) from error
    finally:
        os.close(reader)
        os.close(writer)
    return agent


def _gate(fd: int, address_space: int | None) -> str:
    limit = "" if address_space is None else f"ulimit -v {address_space >> 10} && "
    # Ends if the caller dies meanwhile: the pipe is then at its end.
    return f'{limit}read -r -u {fd} && exec {fd}<&- && exec "$@"'
