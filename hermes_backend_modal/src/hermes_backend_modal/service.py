"""The requests to the service that sandboxes need, each with a deadline and hints in errors."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import modal
from modal_proto import api_pb2

from hermes_backend_modal.credentials import find_credentials, place_of
from hermes_backend_modal.failures import (
    SDK_ERRORS,
    ImageBuildError,
    ModalAuthError,
    ModalError,
    ModalMissingError,
    ModalTimeoutError,
    ending_of,
    from_sdk,
)
from hermes_backend_modal.options import ModalOptions

T = TypeVar("T")
_SDK: Final[Any] = modal
"""The SDK's wrappers for synchronous and asynchronous callers are only partly typed."""
_ASKING: Final = 10.0
"""Time limit in seconds for finding out why a sandbox has ended."""
_LEAVING: Final = 5.0
"""Time limit in seconds for closing a connection."""
_LOG_LINES: Final = 40
_LOG: Final = 2000
"""How many characters at the end of a failed build's log are shown."""


class Service:
    """The service with one set of credentials; objects of this class share nothing."""

    def __init__(self, options: ModalOptions) -> None:
        self.options = options
        self._client: Any = None
        self._app: Any = None
        self._token_id = ""
        self._workspace: str | None = None
        self._located: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._images: dict[str, asyncio.Task[Any]] = {}
        self._creating = asyncio.Semaphore(options.concurrent_starts)

    @property
    def place(self) -> dict[str, str]:
        """The location of new sandboxes; workspace, app and token are known after `locate`."""
        return {**place_of(self.options), **self._located}

    async def require_place(self, handle: Mapping[str, Any]) -> None:
        """Raise if a sandbox belongs to another location, where it would wrongly count as ended.

        Raises:
            ModalError: It was created at another address, in another environment or workspace, or its token is missing.
        """
        name = handle["sandbox_id"]
        for part, found in place_of(self.options).items():
            if (recorded := handle.get(part, found)) != found:
                variable = "MODAL_SERVER_URL" if part == "server" else "MODAL_ENVIRONMENT"
                raise ModalError(
                    f"expected Modal's {part} {recorded!r} for sandbox {name}, got {found!r}",
                    hint=f"{variable}={recorded} hermes-core sandboxes gc",
                )
        if (wanted := handle.get("workspace")) is None:
            return
        token_id = handle.get("token_id", "…")
        hint = f"MODAL_TOKEN_ID={token_id} MODAL_TOKEN_SECRET=… hermes-core sandboxes gc, with a token of {wanted!r}"
        try:
            workspace = await self.workspace()
        except ModalAuthError as error:
            raise ModalAuthError(
                f"sandbox {name} is in Modal's workspace {wanted!r}: {error.message}", hint=hint
            ) from error
        if workspace != wanted:
            raise ModalError(f"expected Modal's workspace {wanted!r} for sandbox {name}, got {workspace!r}", hint=hint)

    async def ask(self, what: str, work: Awaitable[T], *, seconds: float | None = None, hint: str | None = None) -> T:
        """Send one request within a deadline; `what` starts the error message, `hint` is for missing things."""
        limit = self.options.service_timeout if seconds is None else seconds
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError as error:
            raise ModalTimeoutError(
                f"{what}: Modal did not answer within {limit:g} s",
                hint="check the network and https://status.modal.com; the backend's options *_timeout bound the wait",
            ) from error
        except SDK_ERRORS as error:
            raise from_sdk(error, what, hint) from error

    async def client(self) -> Any:
        """Return the connection, created on first use."""
        async with self._turn:
            if self._client is None:
                url, credentials = find_credentials(self.options)
                made = _SDK.Client(url, api_pb2.CLIENT_TYPE_CLIENT, credentials)
                await self.ask("cannot connect to Modal", made.__aenter__())
                self._client, self._token_id = made, credentials[0]
            return self._client

    async def workspace(self) -> str:
        """Return the name of the token's workspace, requested once."""
        client = await self.client()
        async with self._turn:
            if self._workspace is None:
                found = _SDK.Workspace.from_context(client=client)
                await self.ask("the token's workspace cannot be read", found.hydrate.aio())
                self._workspace = str(found.name or "")
            return self._workspace

    async def locate(self) -> None:
        """Determine the workspace and app of new sandboxes, so that they can be found later."""
        app = await self.app()
        self._located = {"workspace": await self.workspace(), "app": str(app.app_id), "token_id": self._token_id}

    async def app(self, *, make: bool = True) -> Any:
        """Return the app of the sandboxes, looked up once; create it only when sandboxes are created."""
        client = await self.client()
        async with self._turn:
            if self._app is None:
                options = self.options
                where = f"environment {options.environment!r}" if options.environment else "the default environment"
                self._app = await self.ask(
                    f"app {options.app_name!r} is not available in {where}",
                    modal.App.lookup.aio(
                        options.app_name,
                        client=client,
                        environment_name=options.environment,
                        create_if_missing=make and options.create_app,
                    ),
                    hint="modal environment list shows the environments (option environment); create_app: true makes "
                    "the app",
                )
            return self._app

    async def image(self, name: str) -> Any:
        """Return a built image; concurrent requests for the same image share one build.

        Raises:
            ImageBuildError: It cannot be built; the message has the end of the log.
        """
        building = self._images.get(name)
        if building is None or (building.done() and (building.cancelled() or building.exception() is not None)):
            building = self._images[name] = asyncio.ensure_future(self._build(name))
        return await asyncio.shield(building)

    async def _build(self, name: str) -> Any:
        app = await self.app()
        image = self._define(name)
        what = f"image {name!r} cannot be built"
        try:
            async with asyncio.timeout(self.options.build_timeout):
                return await image.build.aio(app)
        except modal.exception.ImageBuildError as error:
            log = await self._log_of(error.image_id)
            hint = "check the image's name and that its registry may be read (option registry_secret)"
            raise ImageBuildError(f"{what}: {error}\n{log[-_LOG:].rstrip()}", hint=hint) from error
        except TimeoutError as error:
            limit = f"{self.options.build_timeout:g} s"
            raise ModalTimeoutError(
                f"{what}: not finished within {limit}", hint="raise the option build_timeout"
            ) from error
        except SDK_ERRORS as error:
            raise from_sdk(error, what, hint=f"modal image logs, or another image than {name!r}") from error

    def _define(self, name: str) -> Any:
        options = self.options
        secret = None if options.registry_secret is None else self._secret(options.registry_secret)
        if name.startswith("im-"):
            return modal.Image.from_id(name, client=self._client)
        if name.startswith("dockerfile:"):
            path = Path(name.removeprefix("dockerfile:")).expanduser()
            given: dict[str, Any] = {"registry_secret": secret, "add_python": options.add_python}
            return modal.Image.from_dockerfile(path, context_dir=path.parent, **given)
        if name == "debian_slim" or name.startswith("debian_slim:"):
            return modal.Image.debian_slim(name.partition(":")[2] or None)
        return modal.Image.from_registry(name, secret=secret, add_python=options.add_python)

    async def _log_of(self, image_id: str) -> str:
        found: list[str] = []
        with contextlib.suppress(*SDK_ERRORS, TimeoutError):
            async with asyncio.timeout(self.options.service_timeout):
                image = _SDK.Image.from_id(image_id, client=self._client)
                found = [entry.message async for entry in image.logs.tail.aio(entries=_LOG_LINES)]
        return "".join(found)

    def _secret(self, name: str) -> Any:
        return modal.Secret.from_name(name, environment_name=self.options.environment)

    def _volume(self, name: str) -> Any:
        volume = _SDK.Volume.from_name(name.removesuffix(":ro"), environment_name=self.options.environment)
        return volume.with_mount_options(read_only=True) if name.endswith(":ro") else volume

    async def create(self, image: Any, tags: Mapping[str, str], **asked: Any) -> Any:
        """Create a sandbox; after a failure, end it in case it exists."""
        options = self.options
        app = await self.app()
        work = modal.Sandbox.create.aio
        given = {
            "app": app,
            "client": await self.client(),
            "image": image,
            "tags": {**options.tags, **tags},
            "secrets": [self._secret(name) for name in options.secrets],
            "volumes": {path: self._volume(name) for path, name in options.volumes.items()},
            "timeout": options.max_lifetime,
            "idle_timeout": min(options.idle_timeout, options.max_lifetime),
            "region": options.region
            if options.region is None or isinstance(options.region, str)
            else [*options.region],
            "cloud": options.cloud,
            "gpu": options.gpu,
            "workdir": "/",
            **asked,
        }
        what = f"a sandbox of app {options.app_name!r} cannot be created"
        hint = "modal secret list, modal volume list"
        async with self._creating:
            try:
                made = work("sleep", "infinity", **given)
                return await self.ask(what, made, seconds=options.create_timeout, hint=hint)
            except BaseException:
                # The creation may have succeeded without an answer.
                with contextlib.suppress(Exception):
                    await self.end_tagged(tags)
                raise

    async def find_tagged(self, tags: Mapping[str, str], *, app_id: str | None = None) -> AsyncIterator[Any]:
        """Find the running sandboxes of an app by tags; by default in the configured app, if it exists."""
        if app_id is None:
            try:
                app_id = (await self.app(make=False)).app_id
            except ModalMissingError:
                return
        listing = aiter(modal.Sandbox.list.aio(app_id=app_id, tags=dict(tags), client=await self.client()))
        while True:
            try:
                yield await self.ask(f"the sandboxes of app {app_id} cannot be listed", anext(listing))
            except StopAsyncIteration:
                return

    async def tags_of(self, sandbox: Any) -> dict[str, str]:
        """Return a sandbox's tags; an ended sandbox has none."""
        try:
            return dict(await self.ask("a sandbox's tags cannot be read", sandbox.get_tags.aio()))
        except ModalMissingError:
            return {}

    async def end_tagged(self, tags: Mapping[str, str], *, app_id: str | None = None) -> int:
        """End the sandboxes with tags, and return their number."""
        found = [sandbox async for sandbox in self.find_tagged(tags, app_id=app_id)]
        await asyncio.gather(*(self.end(sandbox) for sandbox in found))
        return len(found)

    async def end(self, sandbox: Any) -> None:
        """End a sandbox; an ended one is not an error."""
        with contextlib.suppress(ModalMissingError):
            await self.ask(f"sandbox {sandbox.object_id} cannot be ended", sandbox.terminate.aio())
        await _within(_LEAVING, sandbox.detach.aio())

    async def ending(self, sandbox: Any) -> str | None:
        """Return why a sandbox has ended, or None while it runs."""
        what = "a sandbox's state cannot be read"
        code: int | None = await self.ask(what, sandbox.poll.aio(), seconds=_ASKING)
        if code is None:
            return None
        error: modal.Error | None = None
        try:
            async with asyncio.timeout(_ASKING):
                await sandbox.wait.aio(raise_on_termination=True)
        except (modal.exception.SandboxTimeoutError, modal.exception.SandboxTerminatedError) as raised:
            error = raised
        except (*SDK_ERRORS, TimeoutError):
            pass  # the exit code is enough
        options = self.options
        return ending_of(error, code, max_lifetime=options.max_lifetime, idle_timeout=options.idle_timeout)

    async def start(self, sandbox: Any, argv: Sequence[str]) -> Any:
        """Start a program in a sandbox without its own time limit; the sandbox's limit applies."""
        work = sandbox.exec.aio(*argv, timeout=None, text=False, workdir="/")
        return await self.ask(
            f"a program cannot be started in sandbox {sandbox.object_id}",
            work,
            seconds=self.options.create_timeout,
            hint="it has ended; the next one gets another",
        )

    async def run(self, sandbox: Any, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program to its end; return its exit code and standard error."""
        limit = int(self.options.service_timeout) + 1
        what = f"a program cannot be run in sandbox {sandbox.object_id}"

        async def work() -> tuple[int, str]:
            process = await sandbox.exec.aio(*argv, timeout=limit, text=False, workdir="/")
            try:
                said = (await process.stderr.read.aio()).decode(errors="replace")
            except modal.exception.ExecTimeoutError:
                said = ""
            return await process.wait.aio(), said

        clock = asyncio.get_running_loop().time
        began = clock()
        code, said = await self.ask(what, work(), seconds=limit + 5)
        # The SDK returns -1 after the timeout of an exec, unless the service killed the program just before.
        if code == -1 or (code == 128 + signal.SIGKILL and clock() - began >= limit):
            raise ModalTimeoutError(f"{what}: it did not end within {limit} s")
        return code, said

    async def aclose(self) -> None:
        """Close the connection."""
        building = [task for task in self._images.values() if not task.done()]
        for task in building:
            task.cancel()
        await asyncio.gather(*building, return_exceptions=True)
        client, self._client, self._app, self._images = self._client, None, None, {}
        self._workspace, self._located = None, {}
        if client is not None:
            await _within(_LEAVING, client.__aexit__(None, None, None))


async def _within(seconds: float, farewell: Awaitable[Any]) -> None:
    """Release something within a bounded time; errors are ignored."""
    with contextlib.suppress(*SDK_ERRORS, TimeoutError):
        async with asyncio.timeout(seconds):
            await farewell
