"""A token-level server on the loopback interface: vLLM's, SGLang's or Atropos' protocol, a sampler that a test writes,
faults on demand, and a log of everything that crossed the wire. It shares no code with the clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from token_wire import WIRES, Asked, RefusedError, Sampled, Wire

__all__ = ["Fault", "Sampled", "Sampler", "TokenServer", "serving_tokens", "sums"]

Sampler = Callable[[list[int], Mapping[str, Any]], Sampled]
_FLAG = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."


def sums(prompt: list[int], sampling: Mapping[str, Any]) -> Sampled:
    """Sample three tokens that depend on the prompt, so that no two turns are alike."""
    first = sum(prompt) % 1000
    ids = [first, first + 1, 2]
    return Sampled(ids=ids, logprobs=[-0.25, -0.5, -0.125], stop_id=2)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of one request; created by the class methods."""

    kind: str
    status: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    edit: Callable[[dict[str, Any]], object] | None = None

    @classmethod
    def none(cls) -> Fault:
        """Return no fault, to let one request pass before the next fault."""
        return cls(kind="none")

    @classmethod
    def hang(cls) -> Fault:
        """Sample until aborted or disconnected; an abort is answered with the tokens so far."""
        return cls(kind="hang")

    @classmethod
    def drop(cls) -> Fault:
        """Close the connection in the middle of the body."""
        return cls(kind="drop")

    @classmethod
    def refuse(cls, status: int, message: str = "refused", **headers: str) -> Fault:
        """Answer with a status; `Retry_After="3"` is a header."""
        return cls(
            kind="refuse", status=status, message=message, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    @classmethod
    def answer(cls, edit: Callable[[dict[str, Any]], object]) -> Fault:
        """Change the answer before it is sent; a value or bytes that the edit returns are sent in its place."""
        return cls(kind="edit", edit=edit)

    @classmethod
    def named(cls, kind: str) -> Fault:
        """`short_logprobs`, `long_logprobs`, `no_logprobs`, `no_ids`, `wrong_ids` or `abort`."""
        return cls(kind=kind)


class TokenServer:
    """Answers generate requests with a sampler; `lines` is the wire log, also appended to `log`.

    `checks` holds the requests by which a model's check samples a token, which are answered apart: `check_fault` and
    `check_logprob` say how. `received` holds each other request's headers and body as bytes. `aborts` are the ids
    that abort calls named and `left` those whose client closed the connection first. `arrived` is set when a request
    is being sampled, `ended` when one has its line in the log.
    """

    def __init__(
        self,
        protocol: str,
        sampler: Sampler = sums,
        *,
        wire: Wire | None = None,
        log: Path | None = None,
        api_key: str | None = None,
        model: str = "m",
        max_context: int | None = None,
        scale_out: bool = True,
        healthy: bool = True,
    ) -> None:
        self.wire = wire or WIRES[protocol]()
        self.sampler = sampler
        self.log = log
        self.api_key = api_key
        self.model = model
        self.max_context = max_context
        self.scale_out = scale_out
        self.healthy = healthy
        self.faults: list[Fault] = []
        self.check_fault = Fault.none()
        self.check_logprob: float | None = -0.5
        self.checks: list[bytes] = []
        self.lines: list[dict[str, Any]] = []
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.aborts: list[str] = []
        self.left: list[str] = []
        self.calls: list[str] = []
        self.arrived = asyncio.Event()
        self.ended = asyncio.Event()
        self.hangs_on_abort = False
        self.url = ""
        self._sampling: dict[str, asyncio.Event] = {}

    def set_faults(self, *faults: Fault) -> None:
        """Let the next requests go wrong, one fault each; those after them go well."""
        self.faults = list(faults)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**28, middlewares=[self._gate])
        app.router.add_get("/health", self._health)
        app.router.add_post(self.wire.path, self._generate)
        if self.wire.abort_path:
            app.router.add_post(self.wire.abort_path, self._abort)
        if self.wire.name != "atropos":
            app.router.add_get("/v1/models", self._models)
        return app

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path}")
        given = request.headers.get("Authorization")
        if self.api_key and request.path != "/health" and given != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if self.wire.name == "vllm" and not self.scale_out and request.path.startswith("/inference/"):
            return web.json_response(self.wire.error(403, _FLAG), status=403)
        return await handler(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def _abort(self, request: web.Request) -> web.Response:
        if self.hangs_on_abort:
            await asyncio.Event().wait()
        try:
            ids = self.wire.aborted_ids(json.loads(await request.read()))
        except RefusedError as refused:
            return web.json_response(self.wire.error(refused.status, str(refused)), status=refused.status)
        self.aborts += ids
        for one in ids:
            for running, event in self._sampling.items():
                if running.startswith(one):  # SGLang compares beginnings
                    event.set()
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.headers.get("X-Request-Id", "").startswith("check-"):
            return self._checked(request, body)
        self.received.append((dict(request.headers), body))
        fault = self.faults.pop(0) if self.faults else Fault.none()
        line = {
            "protocol": self.wire.name,
            "request_id": request.headers.get("X-Request-Id", ""),
            "rollout_id": unquote(request.headers.get("X-Hermes-Rollout-Id", "")),
            "prompt_ids": [],
            "sampling": {},
            "ids": [],
            "logprobs": [],
            "finish_reason": None,
            "status": None,
            "aborted": False,
        }
        try:
            return await self._answer(request, body, fault, line)
        except RefusedError as refused:
            line["status"] = refused.status
            return web.json_response(self.wire.error(refused.status, str(refused)), status=refused.status)
        except asyncio.CancelledError:
            line["aborted"] = True
            self.left.append(str(line["request_id"]))
            raise
        finally:
            self._note(line)

    def _checked(self, request: web.Request, body: bytes) -> web.Response:
        """Answer a model's check, which belongs to no rollout: it uses no sampler and writes no line."""
        self.checks.append(body)
        asked = self.wire.read(_object(body, self.wire.refusal), request.headers)
        drawn = Sampled(ids=[2], logprobs=[self.check_logprob], finish_reason="length")
        answer = self._spoilt(self.wire.answer(asked, drawn), self.check_fault)
        return web.json_response(answer, status=self.check_fault.status)

    async def _answer(
        self, request: web.Request, body: bytes, fault: Fault, line: dict[str, Any]
    ) -> web.StreamResponse:
        asked = self.wire.read(_object(body, self.wire.refusal), request.headers)
        line |= {"prompt_ids": asked.prompt, "request_id": line["request_id"] or asked.request_id}
        line["sampling"] = asked.sent
        self._fits(asked)
        if fault.kind == "refuse":
            line["status"] = fault.status
            return web.json_response(
                self.wire.error(fault.status, fault.message), status=fault.status, headers=fault.headers
            )
        drawn = await self._drawn(asked, fault, line)
        answer: Any = self.wire.answer(asked, drawn)
        answer = self._spoilt(answer, fault)
        line["status"] = 200
        if fault.kind == "drop":
            return await _half(request, json.dumps(answer).encode())
        if request.transport is None or request.transport.is_closing():
            raise asyncio.CancelledError  # aborted by a client that does not read the answer
        line |= {"ids": list(drawn.ids), "logprobs": list(drawn.logprobs), "finish_reason": drawn.finish_reason}
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=sent, content_type="application/json")

    async def _drawn(self, asked: Asked, fault: Fault, line: dict[str, Any]) -> Sampled:
        drawn = self.sampler(asked.prompt, asked.sampling)
        most = asked.sampling.get("max_tokens", len(drawn.ids))
        if len(drawn.ids) > most:
            drawn = replace(
                drawn, ids=drawn.ids[:most], logprobs=drawn.logprobs[:most], finish_reason="length", stop_id=None
            )
        aborted = replace(
            drawn, ids=drawn.ids[:1], logprobs=drawn.logprobs[:1], finish_reason="abort", weight_versions=None
        )
        self.arrived.set()
        if fault.kind == "abort":
            return aborted
        if fault.kind == "hang":
            event = self._sampling[asked.request_id] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self._sampling[asked.request_id]
            line["aborted"] = True
            return aborted
        return drawn

    def _spoilt(self, answer: dict[str, Any], fault: Fault) -> Any:
        if fault.edit is not None:
            changed = fault.edit(answer)
            return answer if changed is None else changed
        if fault.kind == "short_logprobs":
            self.wire.logprob_list(answer).pop()
        elif fault.kind == "long_logprobs":
            listed = self.wire.logprob_list(answer)
            listed.append(listed[-1])
        elif fault.kind == "no_logprobs":
            self.wire.without_logprobs(answer)
        elif fault.kind == "no_ids":
            self.wire.without_ids(answer)
        elif fault.kind == "wrong_ids":
            self.wire.with_other_ids(answer)
        return answer

    def _fits(self, asked: Asked) -> None:
        if self.max_context is None or len(asked.prompt) < self.max_context:
            return
        found, most = len(asked.prompt), self.max_context
        if self.wire.name == "sglang":
            raise RefusedError(400, f"The input ({found} tokens) is longer than the model's context length ({most}).")
        raise RefusedError(
            400, f"The decoder prompt (length {found}) is longer than the maximum model length of {most}."
        )

    def _note(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        self.ended.set()
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


@asynccontextmanager
async def serving_tokens(server: TokenServer) -> AsyncIterator[TokenServer]:
    """Listen while the block runs; `server.url` is the root address."""
    runner = web.AppRunner(server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def _object(body: bytes, status: int) -> Mapping[str, Any]:
    try:
        data = json.loads(body)
    except ValueError as error:
        raise RefusedError(status, "not JSON") from error
    if not isinstance(data, dict):
        raise RefusedError(status, "not an object")
    return data


async def _half(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
