"""A stand-in for Nomad's HTTP API: answers of recorded shape, allocations that really run, and faults on demand.

Run as a program it prints its port and serves until its standard input ends. Requests that it does not know, and
answers of its own that have not the recorded shape, are errors (500) that /standin/errors lists.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import WSMsgType, web
from nomad_jobs import Allocation, Engine, Job
from nomad_shapes import JOB, RECORDED, differences

_NO_PROGRAM = (
    'OCI runtime exec failed: exec failed: unable to start container process: exec: "{}": executable file not found in '
    "$PATH: unknown\r\n"
)
_NOT_EXECUTED = b"setpriv: failed to execute "
_FAULTS = {
    "delay", "deployment", "exec_close", "exec_status", "missing_images", "mute", "node_cpu", "node_memory",
    "restart_loop", "skew", "start_delay", "token", "unknown_key",
}  # fmt: skip
_QUERY: Mapping[tuple[str, str], set[str]] = {
    ("GET", "/v1/jobs"): {"prefix"},
    ("DELETE", "/v1/job/{job}"): {"purge"},
    ("GET", "/v1/client/allocation/{allocation}/exec"): {"task", "tty", "command"},
    ("GET", "/v1/job/{job}/allocations"): {"index", "wait"},
}
"""The allowed query parameters besides region and namespace, by method and route."""
_PARTS = ("RestartPolicy", "ReschedulePolicy", "EphemeralDisk")
_JOB_KEYS = {"ID", "Name", "Type", "Datacenters", "Meta", "TaskGroups", "Update", "Region", "Namespace"}


class Server:
    """The requests, by path."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.errors: list[str] = []
        self.seen: list[str] = []

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 24)
        app.add_routes(
            [
                web.get("/v1/status/leader", self._leader),
                web.get("/v1/jobs", self._jobs),
                web.post("/v1/jobs", self._register),
                web.get("/v1/job/{job}", self._job),
                web.delete("/v1/job/{job}", self._deregister),
                web.get("/v1/job/{job}/evaluations", self._evaluations),
                web.get("/v1/job/{job}/allocations", self._allocations),
                web.get("/v1/job/{job}/summary", self._summary),
                web.get("/v1/job/{job}/scale", self._scale_status),
                web.post("/v1/job/{job}/scale", self._scale),
                web.get("/v1/evaluation/{evaluation}", self._evaluation),
                web.get("/v1/allocation/{allocation}", self._allocation),
                web.get("/v1/client/allocation/{allocation}/exec", self._exec),
                web.post("/standin/{order}", self._order),
                web.get("/standin/{what}", self._tell),
                web.route("*", "/{anything:.*}", self._unknown),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith("/standin/"):
            answer: web.StreamResponse = await handler(request)
            return answer
        self.seen.append(f"{request.method} {request.path}")
        faults = self.engine.faults
        token = faults.get("token")
        if token is not None and request.headers.get("X-Nomad-Token") != token:
            return web.Response(status=403, text="Permission denied")
        if new := _unknown_query(request):
            return self._fault(f"unknown query {sorted(new)} of {request.method} {request.path}")
        try:
            answer = await handler(request)
            # Late, and done all the same.
            await asyncio.sleep(faults.get("delay", 0))
        except (web.HTTPException, ConnectionResetError):  # a requested error, or the client has disconnected
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the test must fail
            return self._fault(f"{request.method} {request.path_qs}: {error!r}")
        return answer

    def _fault(self, what: str) -> web.Response:
        self.errors.append(what)
        return web.Response(status=500, text=what)

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._fault(f"unknown request {request.method} {request.path_qs}")

    def _answer(self, kind: str, body: Any, *, index: int | None = None) -> web.Response:
        wrong = differences(kind, body) if kind != "jobs" else []
        if wrong:
            return self._fault(f"the stand-in's answer {kind} differs from Nomad's: {wrong[:3]}")
        headers = {
            "X-Nomad-Index": str(self.engine.next_index() if index is None else index),
            "X-Nomad-Knownleader": "true",
            "X-Nomad-Lastcontact": "0",
        }
        return web.json_response(body, headers=headers)

    def _found(self, request: web.Request) -> Job:
        job = self.engine.jobs.get(request.match_info["job"])
        if job is None:
            raise web.HTTPNotFound(text=RECORDED["agent_self_404"]["body"])
        return job

    async def _leader(self, _request: web.Request) -> web.Response:
        return self._answer("leader", "127.0.0.1:4647")

    async def _jobs(self, request: web.Request) -> web.Response:
        # Not among the recorded answers: the fields that this has are those of the API's documentation.
        fields = ("ID", "ParentID", "Name", "Type", "Priority", "Status", "StatusDescription", "Stop", "Datacenters")
        prefix = request.query.get("prefix", "")
        found = [job for name, job in sorted(self.engine.jobs.items()) if name.startswith(prefix)]
        return self._answer("jobs", [{name: job.description[name] for name in fields} for job in found])

    async def _register(self, request: web.Request) -> web.Response:
        body = await request.json()
        given = body["Job"]
        unknown = (set(body) - {"Job"}) | (set(given) - _JOB_KEYS) | _unknown_parts(given, JOB, ["Update"])
        known = JOB["TaskGroups"][0]
        for group in given["TaskGroups"]:
            unknown |= (set(group) - set(known)) | _unknown_parts(group, known, _PARTS)
            for task in group["Tasks"]:
                recorded = known["Tasks"][0]
                unknown |= (set(task) - set(recorded)) | _unknown_parts(task, recorded, ["Resources", "LogConfig"])
        if unknown or not given["TaskGroups"]:
            return self._fault(f"a job with fields that no recorded one has: {sorted(unknown)}")
        job = self.engine.jobs.setdefault(given["ID"], Job(self.engine, given))
        evaluation = job.register(given)
        index = evaluation["CreateIndex"]
        ids = {"EvalID": evaluation["ID"], "EvalCreateIndex": index, "JobModifyIndex": evaluation["JobModifyIndex"]}
        return self._answer("register", {**RECORDED["register"]["body"], **ids, "Index": index})

    async def _job(self, request: web.Request) -> web.Response:
        return self._answer("job", self._found(request).description)

    async def _deregister(self, request: web.Request) -> web.Response:
        job = self._found(request)
        index = self.engine.next_index()
        await job.end()
        if request.query.get("purge") == "true":
            self.engine.jobs.pop(job.id, None)  # somebody else may have done so meanwhile
        return self._answer("deregister", {**RECORDED["deregister"]["body"], "Index": index, "EvalCreateIndex": index})

    async def _evaluations(self, request: web.Request) -> web.Response:
        return self._answer("evaluations", self._found(request).evaluations)

    async def _evaluation(self, request: web.Request) -> web.Response:
        wanted = request.match_info["evaluation"]
        every = [found for job in self.engine.jobs.values() for found in job.evaluations if found["ID"] == wanted]
        if not every:
            raise web.HTTPNotFound(text="eval not found")
        return self._answer("evaluation", every[0])

    async def _allocations(self, request: web.Request) -> web.Response:
        job = self._found(request)
        index, wait = int(request.query.get("index", 0)), request.query.get("wait", "0ms")
        ends = time.monotonic() + float(wait.removesuffix("ms")) / 1000
        while index and job.changed <= index and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        # In no order, as with Nomad.
        listed = [found.listed() for found in reversed(job.allocations)]
        return self._answer("allocations", listed, index=job.changed)

    async def _allocation(self, request: web.Request) -> web.Response:
        return self._answer("allocation", self._one(request).single())

    def _one(self, request: web.Request) -> Allocation:
        found = self.engine.find(request.match_info["allocation"])
        if found is None:
            raise web.HTTPNotFound(text="alloc not found")
        return found

    async def _summary(self, request: web.Request) -> web.Response:
        job = self._found(request)
        body = json.loads(json.dumps(RECORDED["job_summary"]["body"]))
        counts = body["Summary"].pop("g")
        for group in job.description["TaskGroups"]:
            running = sum(a.status == "running" for a in job.allocations if a.group["Name"] == group["Name"])
            body["Summary"][group["Name"]] = {**counts, "Running": running}
        return self._answer("summary", {**body, "JobID": job.id})

    async def _scale_status(self, request: web.Request) -> web.Response:
        job = self._found(request)
        body = json.loads(json.dumps(RECORDED["scale_status"]["body"]))
        group = body["TaskGroups"].pop("g")
        body["TaskGroups"] = {found["Name"]: group for found in job.description["TaskGroups"]}
        return self._answer("scale_status", {**body, "JobID": job.id})

    async def _scale(self, request: web.Request) -> web.Response:
        self._found(request)
        if self.engine.faults.get("deployment"):
            return web.Response(status=RECORDED["scale"]["status"], text=RECORDED["scale"]["body"])
        return self._fault("scaling was never recorded but while a deployment is active")

    # exec

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        allocation = self._one(request)
        refused = self.engine.faults.get("exec_status")
        if refused is not None:
            return web.Response(status=refused, text="No path to node")
        if request.query["task"] != allocation.task["Name"] or request.query["tty"] != "false":
            return self._fault(f"exec with {dict(request.query)}")
        command = json.loads(request.query["command"])
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        allocation.websockets.add(websocket)
        try:
            if allocation.container is None:
                await websocket.close(code=1011, message=b"task not running")
            elif self.engine.faults.get("exec_close"):
                await websocket.close(code=1011, message=b"No path to node")
            else:
                await self._run(websocket, allocation, command)
        finally:
            allocation.websockets.discard(websocket)
        return websocket

    async def _run(self, websocket: web.WebSocketResponse, allocation: Allocation, command: list[str]) -> None:
        assert allocation.container is not None
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *allocation.container.entering(command), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        feeding = asyncio.ensure_future(self._feed(websocket, process))
        kept: list[bytes] = []
        outputs = {"stdout": process.stdout, "stderr": process.stderr}
        pumps = [asyncio.ensure_future(self._pump(websocket, *output, kept)) for output in outputs.items()]
        try:
            await asyncio.gather(*pumps)
            code = await process.wait()
            for name in ("stdout", "stderr"):
                await websocket.send_str(json.dumps({name: {"close": True}}, separators=(",", ":")))
            code = 126 if kept else (128 - code if code < 0 else code)
            result = {"exit_code": code} if code else {}
            await websocket.send_str(json.dumps({"exited": True, "result": result}, separators=(",", ":")))
            await websocket.close(code=1000)
        except ConnectionError:
            pass
        finally:
            for task in (feeding, *pumps):
                task.cancel()
            await asyncio.wait((feeding, *pumps))
            # As in real Nomad, the program is not killed; it gets the end of its input.
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                self.engine.spawn(_drain(process))

    async def _feed(self, websocket: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        async for message in websocket:
            if message.type is not WSMsgType.TEXT:
                break
            frame = json.loads(message.data)
            if not _is_known(frame):
                self.errors.append(f"an unknown frame: {message.data[:200]}")
                await websocket.close(code=1011, message=b"unknown frame")
                break
            stdin = frame.get("stdin", {})
            if data := stdin.get("data"):
                process.stdin.write(base64.b64decode(data))
                try:
                    await process.stdin.drain()
                except ConnectionError:
                    break
            if stdin.get("close"):
                process.stdin.close()
        process.stdin.close()

    async def _pump(
        self, websocket: web.WebSocketResponse, name: str, stream: asyncio.StreamReader | None, kept: list[bytes]
    ) -> None:
        assert stream is not None
        while data := await stream.read(32768):
            if name == "stderr" and _NOT_EXECUTED.startswith(data[: len(_NOT_EXECUTED)]):
                # It comes in pieces.
                data += await stream.read()
                kept.append(data)
                program = data.split(b": ")[1].removeprefix(b"failed to execute ").decode()
                name, data = "stdout", _NO_PROGRAM.format(program).encode()  # as Docker says it
            while self.engine.faults.get("mute"):
                await asyncio.sleep(0.05)
            text = base64.b64encode(data).decode("ascii")
            await websocket.send_str('{"' + name + '":{"data":"' + text + '"}}')

    # orders of a test

    async def _order(self, request: web.Request) -> web.Response:
        order, body = request.match_info["order"], await request.json()
        if order == "faults":
            assert set(body) <= _FAULTS, f"unknown faults {sorted(set(body) - _FAULTS)}"
            self.engine.faults = body
            return web.json_response({})
        if order == "forget":
            self.errors.clear()
            return web.json_response({})
        found = self.engine.find(body["allocation"])
        assert found is not None
        if order == "drop":
            found.drop()
        elif order == "kill":
            assert found.container is not None
            assert found.container._process is not None
            found.container._process.kill()
        else:
            assert order in {"evict", "lose"}, f"unknown order {order}"
            found.migrates = True if order == "evict" else None
            await found.stop("alloc is being migrated", status="lost" if order == "lose" else "complete")
            found.job.evaluate("alloc-stop" if order == "evict" else "node-update")
        return web.json_response({})

    async def _tell(self, request: web.Request) -> web.Response:
        facts: Mapping[str, Any] = {
            "errors": self.errors,
            "seen": self.seen,
            "jobs": {name: job.description for name, job in self.engine.jobs.items()},
            "allocations": [found.listed() for job in self.engine.jobs.values() for found in job.allocations],
        }
        return web.json_response(facts[request.match_info["what"]])


def _unknown_query(request: web.Request) -> set[str]:
    resource = request.match_info.route.resource
    known = _QUERY.get((request.method, "" if resource is None else resource.canonical), set())
    return set(request.query) - known - {"region", "namespace"}


def _unknown_parts(given: Mapping[str, Any], recorded: Mapping[str, Any], names: Sequence[str]) -> set[str]:
    return {f"{name}.{key}" for name in names for key in set(given.get(name) or {}) - set(recorded[name])}


def _is_known(frame: Any) -> bool:
    if frame == {}:
        return True  # as Nomad's own client sends them
    stdin = frame.get("stdin") if isinstance(frame, dict) and set(frame) == {"stdin"} else None
    return isinstance(stdin, dict) and bool(stdin) and set(stdin) <= {"data", "close"}


async def _drain(process: asyncio.subprocess.Process) -> None:
    await process.communicate()


async def main() -> None:
    server = Server()
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
    # The command of an exec is part of its URL.
    runner._kwargs |= {"max_line_size": 1 << 17, "max_field_size": 1 << 17}
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - what the test reads
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    await server.engine.aclose()
    await runner.cleanup()


if __name__ == "__main__":
    if os.geteuid() != 0:
        raise SystemExit("namespaces are joined by root only")
    asyncio.run(main())
