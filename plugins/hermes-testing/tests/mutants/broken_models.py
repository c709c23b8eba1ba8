"""The plugin of the broken models, and the models: lines of JSON over a plain connection."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from hermes_core.contracts.errors import ModelReplyError, ModelServerError, ModelUnreachableError
from hermes_core.contracts.model import ModelReply, Usage
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ModelSpec


@hookimpl
def hermes_models():
    def model(target, **fields):
        return ModelSpec(name=target.lower(), summary="A model.", target=f"broken_models:{target}", **fields)

    names = [name for name, value in globals().items() if isinstance(value, type) and issubclass(value, Lines)]
    return [model(name, token_level=name == "SaysItRecords") for name in names]


@asynccontextmanager
async def serving_lines():
    """Say hello to every message."""

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'{"say": "hello"}')
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Client:
    def __init__(self, settings):
        self.settings = settings
        self.provenance = {"protocol": "lines", "address": settings.address}

    async def check(self):
        await self.exchange()

    async def chat(self, request):
        return ModelReply(content=await self.exchange(), usage=Usage(prompt_tokens=3, completion_tokens=1))

    async def aclose(self):
        return None

    async def exchange(self):
        place = urlsplit(self.settings.address)
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
        except OSError as error:
            raise self.unreachable(error) from error
        try:
            writer.write(b"{}\r\n\r\n")
            data = await reader.read()
        except ConnectionError as error:
            raise ModelServerError("the server hung up") from error
        finally:
            writer.close()
        try:
            return json.loads(data)["say"]
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(data) from error

    def unreachable(self, error):
        return ModelUnreachableError(str(error))

    def unreadable(self, data):
        return ModelReplyError(f"{len(data)} bytes are no reply")


class Lines:
    Made = Client

    def client(self, settings):
        return self.Made(settings)


class SaysItRecords(Lines):
    """Its spec promises token ids."""


class HasNoCheck(Lines):
    class Made(Client):
        check = property()


class ConnectsAtOnce(Lines):
    def client(self, settings):
        place = urlsplit(settings.address)
        socket.create_connection((place.hostname, place.port)).close()
        return super().client(settings)


KEPT: dict[str, Client] = {}


class IsOneClient(Lines):
    def client(self, settings):
        return KEPT.setdefault(settings.address, super().client(settings))


class IsNotPlain(Lines):
    class Made(Client):
        def __init__(self, settings):
            super().__init__(settings)
            self.provenance["settings"] = settings


class ForgetsWhatItSaid(Lines):
    class Made(Client):
        async def chat(self, request):
            self.provenance = {"protocol": "lines"}
            return await super().chat(request)


class RecordsTheKey(Lines):
    class Made(Client):
        def __init__(self, settings):
            super().__init__(settings)
            self.provenance["key"] = settings.api_key


class RepeatsWhatTheServerSays(Lines):
    class Made(Client):
        def unreadable(self, data):
            return ModelReplyError(f"no reply: {data}")


class IsCheckedOnce(Lines):
    class Made(Client):
        checked = False

        async def check(self):
            await super().check()
            if self.checked:
                raise ModelServerError("again?")
            self.checked = True


class SaysNoEnd(Lines):
    class Made(Client):
        async def chat(self, request):
            return replace(await super().chat(request), finish_reason="")


class AppendsItsReply(Lines):
    class Made(Client):
        async def chat(self, request):
            reply = await super().chat(request)
            request.conversation.append({"role": "assistant", "content": reply.content})
            return reply


class ChokesOnALimit(Lines):
    class Made(Client):
        async def chat(self, request):
            # A rollout's seed comes with its requests; the default is 0.
            if request.sampling or (request.rollout_id == "r1" and request.timeout is None):
                raise ModelReplyError("I need a deadline")
            return await super().chat(request)


class AnswersOneAtATime(Lines):
    class Made(Client):
        busy = False

        async def chat(self, request):
            if self.busy:
                raise ModelServerError("busy")
            self.busy = True
            try:
                return await super().chat(request)
            finally:
                self.busy = False


class SwallowsCancellation(Lines):
    class Made(Client):
        async def chat(self, request):
            try:
                return await super().chat(request)
            except asyncio.CancelledError:
                return ModelReply(content="")


class LetsOtherErrorsOut(Lines):
    class Made(Client):
        def unreachable(self, error):
            return error


class LetsReadingErrorsOut(Lines):
    class Made(Client):
        def unreadable(self, data):
            return ValueError("no reply")


class ClosesOnce(Lines):
    class Made(Client):
        closed = False

        async def aclose(self):
            if self.closed:
                raise RuntimeError("closed already")
            self.closed = True


class HoldsTheLoop(Lines):
    class Made(Client):
        async def chat(self, request):
            if request.rollout_id == "second":
                time.sleep(3)
            return await super().chat(request)
