"""One sandbox of the service, with an agent inside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_backend_modal.failures import ModalSandboxEndedError
from hermes_backend_modal.service import Service
from hermes_backend_modal.startup_script import startup_script
from hermes_backend_modal.stream import ExecStream
from hermes_core.contracts.errors import BackendError, HermesError, NoPythonError, SandboxLostError
from hermes_sandbox.backends import PYTHON_FLAGS, AgentStream, RootAgentHost, make_readonly_script, refuse_mounted

_NOT_INHERITED: Final = frozenset({"HOME", "SHELL", "TERM", "LANG", "PWD", "SHLVL", "OLDPWD", "_"})
"""Variables of a sandbox that do not apply to the commands' user and terminal."""
_NO_PROGRAM: Final = frozenset({126, 127})


class ModalHost(RootAgentHost):
    """A running sandbox.

    Args:
        service: The service.
        sandbox: The SDK's object for it.
        workspace: The rollout's directory inside; for a shared sandbox, the parent of the rollouts' directories.
        identity: uid and gid of the commands; None if each slot has its own.
        provenance: The recorded facts.
    """

    def __init__(
        self,
        service: Service,
        sandbox: Any,
        *,
        workspace: str,
        identity: tuple[int, int] | None,
        provenance: Mapping[str, Any],
    ) -> None:
        self.workspace = workspace
        self.bash = service.options.bash
        self.provenance = {**provenance, "modal_sandbox": sandbox.object_id}
        self._service = service
        self._sandbox: Any = sandbox
        self._name = str(sandbox.object_id)
        self.identity = identity or (0, 0)
        self._is_shared = identity is None
        self._streams: list[ExecStream] = []

    async def start_agent(self) -> AgentStream:
        """Start a Python inside that prints the sandbox's variables and waits for the agent.

        Raises:
            NoPythonError: The image has no Python.
        """
        options = self._service.options
        prepare = startup_script(self.workspace, None if self._is_shared else self.identity)
        argv = [options.python, *PYTHON_FLAGS[:-1], prepare + PYTHON_FLAGS[-1]]
        process = await self._service.start(self._living(), argv)
        opened = ExecStream(process, self._obituary, where=f" in Modal sandbox {self._name}")
        try:
            async with asyncio.timeout(options.setup_timeout):
                variables = await self._hear(process, opened)
        except TimeoutError as error:
            await opened.aclose()
            raise BackendError(
                f"{options.python} did not start in sandbox {self._name} within {options.setup_timeout:g} s",
                hint="raise the backend's option setup_timeout",
            ) from error
        except BaseException:
            await opened.aclose()
            raise
        # Commands must not get the variables of the service's own program.
        kept = {name: value for name, value in variables.items() if not name.startswith("MODAL_")}
        self.environment = {name: kept[name] for name in kept.keys() - _NOT_INHERITED} | options.env_vars
        self._streams.append(opened)
        return opened.stream

    async def _hear(self, process: Any, opened: ExecStream) -> dict[str, str]:
        line = await opened.errors.first_line()
        variables = None if line is None else _variables(line)
        if variables is None:
            raise await self._not_started(process, opened, line or b"")
        return variables

    async def _not_started(self, process: Any, opened: ExecStream, line: bytes) -> BackendError:
        said = f"{line.decode(errors='replace')}\n{await opened.errors.last_words()}".strip()
        why = await self._obituary()
        if why is not None:
            return ModalSandboxEndedError(why)
        code = await self._service.ask(f"the exit code in {self._name} cannot be read", process.wait.aio())
        python = self._service.options.python
        if code in _NO_PROGRAM:
            return NoPythonError(
                f"the image has no {python}: {said}",
                hint="use an image with Python 3.8 or newer, set the backend's option add_python: '3.12', or its "
                "option python to the path inside",
            )
        return BackendError(f"{python} does not start in sandbox {self._name} (exit code {code}): {said[-2000:]}")

    async def _obituary(self) -> str | None:
        try:
            why = None if self._sandbox is None else await self._service.ending(self._sandbox)
        except HermesError as error:
            return f"sandbox {self._name} does not answer: {error.message}"
        return None if why is None else f"Modal sandbox {self._name} has ended: {why}"

    def _living(self) -> Any:
        if self._sandbox is None:
            raise SandboxLostError(f"sandbox {self._name} has been ended")
        return self._sandbox

    async def lock(self, folder: str, identity: tuple[int, int]) -> None:
        """End a user's commands and give a directory to root; the user can still read and execute its files."""
        options = self._service.options
        refuse_mounted(folder, options.volumes)
        argv = [options.python, "-I", "-S", "-E", "-c", make_readonly_script(folder, identity)]
        code, said = await self._service.run(self._living(), argv)
        if code != 0:
            raise BackendError(f"the workspace cannot be made read-only: {said.strip()[-500:]}")

    async def stop_all(self) -> None:
        """End the sandbox, which ends everything in it and deletes its files."""
        if self._sandbox is not None:
            await self._service.end(self._sandbox)
            self._sandbox = None
        streams, self._streams = self._streams, []
        for opened in streams:
            await opened.aclose()


def _variables(line: bytes) -> dict[str, str] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
