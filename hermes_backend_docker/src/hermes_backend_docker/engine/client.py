"""The requests to the engine that sandboxes need, each with a deadline and hints in errors."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from aiodocker import Docker
from aiodocker.exceptions import DockerError

from hermes_backend_docker.engine.address import Address
from hermes_backend_docker.engine.attached_stream import attach
from hermes_backend_docker.engine.failures import (
    ContainerGoneError,
    EngineError,
    EngineTimeoutError,
    EngineUnreachableError,
    NameConflictError,
    from_docker,
    is_connection_failure,
    unreachable_error,
)
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_sandbox.backends import AgentStream

T = TypeVar("T")
_SAID: Final = 2000
_NOT_FOUND: Final = 404
_STAT: Final = "X-Docker-Container-Path-Stat"
_LARGEST_TEXT: Final = 4 << 20
_OBITUARY: Final = 2.0
"""Time limit in seconds for finding out why a container has ended."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts about an engine, and the limits it can enforce."""

    version: str
    runtimes: tuple[str, ...]
    default_runtime: str
    limits: frozenset[str]
    kernel: str
    few_users: bool
    """Whether containers only have the first 65,536 uids, because user mapping is on."""


class Engine:
    """One engine. Its connections belong to the event loop of the first request.

    Args:
        address: The engine's address.
        timeout: Timeout of a request in seconds.
    """

    def __init__(self, address: Address, *, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._client: Docker | None = None
        self._facts: EngineFacts | None = None

    def client(self) -> Docker:
        """Return the connection pool, created on first use because it belongs to an event loop."""
        if self._client is None:
            # The address already has the certificates, so nothing else is read from the environment.
            self._client = Docker(url=self.address.url, ssl_context=self.address.tls)
        return self._client

    async def ask(self, what: str, work: Callable[[Docker], Awaitable[T]], *, seconds: float | None = None) -> T:
        """Send one request within a deadline; `what` starts the error message."""
        limit = self._timeout if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                return await work(self.client())
        except TimeoutError as error:
            hint = "docker info; restart the engine if that hangs too"
            raise EngineTimeoutError(f"{what}: the engine did not answer within {limit:g} s", hint=hint) from error
        except DockerError as error:
            raise from_docker(error, what, self.address) from error
        except Exception as error:  # connection errors have many classes; others are raised again
            if is_connection_failure(error):
                raise unreachable_error(error, self.address) from error
            raise

    async def facts(self) -> EngineFacts:
        """Return facts about the engine, requested once.

        Raises:
            EngineUnreachableError: No engine answers, or another server does.
        """
        if self._facts is None:
            info = await self.ask("the engine's facts cannot be requested", lambda docker: docker.system.info())
            if "ServerVersion" not in info:
                raise EngineUnreachableError(
                    f"expected a Docker engine at {self.address.shown}, got another server",
                    hint="check docker_host and DOCKER_HOST",
                )
            self._facts = _facts(info)
        return self._facts

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """Create a container and return its id; leave nothing behind on failure."""
        work = lambda docker: docker.containers.create(dict(config), name=name)  # noqa: E731 - a request
        try:
            made = await self.ask(f"container {name} cannot be created", work)
        except NameConflictError:
            raise
        except BaseException:
            # The creation may have succeeded without an answer.
            await self.remove(name)
            raise
        return str(made.id)

    async def read_files(self, name: str, image: str, labels: Mapping[str, str], paths: Sequence[str]) -> list[str]:
        """Return the texts of an image's files without running it; a missing file is empty."""
        what = f"the files of image {image} cannot be read"
        config = {"Image": image, "Labels": dict(labels), "Entrypoint": ["none"], "Cmd": []}
        async with self.container(name, config) as container:
            return [await self.ask(what, partial(_text_of, container=container, path=path)) for path in paths]

    @asynccontextmanager
    async def container(self, name: str, config: Mapping[str, Any]) -> AsyncIterator[str]:
        """Create a container without starting it, and remove it at the end of the block."""
        container = await self.create(name, config)
        try:
            yield container
        finally:
            await self.remove(container)

    async def stat_file(self, container: str, path: str) -> Mapping[str, Any] | None:
        """Return the engine's facts about a file in a container, including `size` and `linkTarget`, or None."""
        what = f"{path} in container {container[:12]} cannot be inspected"
        return await self.ask(what, partial(_stat, container=container, path=path))

    async def unpack(self, container: str, folder: str, archive: bytes, *, seconds: float) -> None:
        """Unpack a .tar, gzipped or not, in a folder of a container, running or not."""

        async def put(docker: Docker) -> None:
            handle = docker.containers.container(container)
            await handle.put_archive(folder, io.BytesIO(archive))  # type: ignore[no-untyped-call]  # aiodocker types it not

        await self.ask(f"cannot unpack an archive in container {container[:12]}", put, seconds=seconds)

    async def attach(self, container: str) -> AgentStream:
        """Attach to a container's standard streams before its start."""

        async def explain() -> str | None:
            return await self.obituary(container)

        return await self.ask(
            f"cannot attach to container {container[:12]}", lambda _: attach(self.address, container, explain)
        )

    async def start(self, container: str) -> None:
        """Start a container."""
        await self.ask(
            f"container {container[:12]} cannot be started",
            lambda docker: docker.containers.container(container).start(),
        )

    async def run_to_end(self, container: str, *, seconds: float) -> int:
        """Run a container to its end and return the exit code of its first process."""

        async def work(docker: Docker) -> int:
            handle = docker.containers.container(container)
            await handle.start()
            return int((await handle.wait())["StatusCode"])

        return await self.ask(f"container {container[:12]} cannot be run", work, seconds=seconds)

    async def run(self, container: str, argv: Sequence[str]) -> None:
        """Run a program as root in a running container to its end.

        Raises:
            EngineError: The program cannot be run or did not exit with 0.
        """

        async def work(docker: Docker) -> tuple[int, str]:
            execution = await docker.containers.container(container).exec(list(argv), user="0:0")
            said = bytearray()
            async with execution.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    said += message.data[-_SAID:]
            return (await execution.inspect())["ExitCode"], said[-_SAID:].decode(errors="replace")

        code, said = await self.ask(f"a program cannot be run in container {container[:12]}", work)
        if code:
            raise EngineError(f"a program in container {container[:12]} exited with {code}: {said.strip()}")

    async def remove(self, container: str) -> None:
        """Remove a container with all its processes and wait for the end; a missing container is not an error."""
        what = f"container {container[:12]} cannot be removed"
        try:
            handle = self.client().containers.container(container)
            await self.ask(what, lambda _: handle.delete(force=True, v=True))
        except ContainerGoneError:
            # A removal is already in progress, for example by the engine; this request answers after its end.
            await self._until_removed(container, what)

    async def _until_removed(self, container: str, what: str) -> None:
        try:
            handle = self.client().containers.container(container)
            await self.ask(what, lambda _: handle.wait(condition="removed"))
        except ContainerGoneError:
            return

    async def list_by_label(self, label: str) -> list[Mapping[str, Any]]:
        """List all containers with a label: `Id`, `Names`, `Labels`, `State`."""
        filters = json.dumps({"label": [label]})
        found = await self.ask(
            "containers cannot be listed",
            lambda docker: docker._query_json(  # noqa: SLF001 - its `list` drops the labels' types
                "containers/json", params={"all": "true", "filters": filters}
            ),
        )
        return cast("list[Mapping[str, Any]]", found)

    async def obituary(self, container: str) -> str | None:
        """Return why a container has ended, or None if the engine no longer knows."""
        try:
            async with asyncio.timeout(_OBITUARY):
                return await _read_obituary(self.address, container)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            return None

    async def aclose(self) -> None:
        """Close the connections; later requests open new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def _stat(docker: Docker, *, container: str, path: str) -> Mapping[str, Any] | None:
    where, params = f"containers/{container}/archive", {"path": path}
    try:
        try:
            async with docker._query(where, method="HEAD", params=params) as answer:  # noqa: SLF001 - it has no other
                return cast("Mapping[str, Any]", json.loads(base64.b64decode(answer.headers[_STAT])))
        except json.JSONDecodeError:
            # An error answer to HEAD has no body, which aiodocker does not expect.
            async with docker._query(where, params=params) as answer:  # noqa: SLF001 - it has no other
                answer.close()
                raise DockerError(answer.status, f"{path} was not found, without a reason") from None
    except DockerError as error:
        if error.status != _NOT_FOUND:
            raise
        return None


async def _text_of(docker: Docker, *, container: str, path: str) -> str:
    """Return the text of a file of a container, with a size limit, because the image's author chooses its size."""
    about = await _stat(docker, container=container, path=path)
    if about is None:
        return ""
    if (size := int(about["size"])) > _LARGEST_TEXT:
        raise SandboxRefusedError(f"expected {path} of the image to have at most {_LARGEST_TEXT} bytes, got {size}")
    try:
        with await docker.containers.container(container).get_archive(path) as archive:
            # A link to another place is not in the archive.
            file = archive.extractfile(posixpath.basename(path))
            return "" if file is None else file.read().decode("utf-8", "replace")
    except KeyError:
        return ""


def _facts(info: Mapping[str, Any]) -> EngineFacts:
    limits = {
        "memory": info.get("MemoryLimit"),
        "swap": info.get("SwapLimit"),
        "cpu": info.get("CpuCfsQuota"),
        "pids": info.get("PidsLimit"),
    }
    security = " ".join(info.get("SecurityOptions") or ())
    return EngineFacts(
        version=info["ServerVersion"],
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        default_runtime=info.get("DefaultRuntime") or "runc",
        limits=frozenset(name for name, there in limits.items() if there),
        kernel=info.get("KernelVersion", ""),
        few_users="name=userns" in security or "name=rootless" in security,
    )


async def _read_obituary(address: Address, container: str) -> str | None:
    # HTTP/1.0, so that events arrive as bare lines; the engine keeps the last 256 of them.
    filters = quote(json.dumps({"container": [container], "event": ["oom", "kill", "die"]}))
    reader, writer = await address.connect()
    try:
        writer.write(f"GET /events?since=0&filters={filters} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        seen: list[str] = []
        while line := await reader.readline():
            event = json.loads(line)
            seen.append(event["Action"])
            if event["Action"] == "die":
                return _verdict(seen, event["Actor"]["Attributes"].get("exitCode", "?"))
        return None
    finally:
        writer.transport.abort()


def _verdict(seen: list[str], code: str) -> str:
    if "oom" in seen and code == "137":
        return "the container ran out of memory and was killed (exit code 137); raise memory_mb"
    if "kill" in seen:
        return f"the container was killed or removed by somebody else (exit code {code})"
    return f"the container has ended (exit code {code})"
