"""Serve a model over vLLM's token-level protocol: token ids in, sampled ids and their raw logprobs out.

In addition to vLLM's paths there is `POST /update_weights` with `{"path": FILE, "version": NAME}`, which responds once
the next batch will use the new weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final
from zlib import crc32

from aiohttp import web

from tiny_rl.model import tokenizer
from tiny_rl.model import transformer as model
from tiny_rl.model.compilation_cache import keep_compiled
from tiny_rl.model.sampling_engine import CONTEXT, MOST_STOPS, Engine, Job, Result

_ROLLOUT: Final = "X-Hermes-Rollout-Id"
_SEED: Final = "X-Hermes-Rollout-Seed"


class BadRequestError(Exception):
    """A request that cannot be served; the message is for the client."""


class TokenServer:
    """The HTTP side. `log`, if given, gets one line per response: the request and the sampled tokens."""

    def __init__(self, engine: Engine, *, eos_ids: Sequence[int], seed: int = 0, log: IO[str] | None = None) -> None:
        self._engine = engine
        self._eos_ids = tuple(eos_ids)
        self._chance = random.Random(seed)  # noqa: S311 - reproducible sampling, nothing to guard
        self._log = log

    def app(self) -> web.Application:
        """Return the application; it serves as long as the engine lives."""
        app = web.Application(client_max_size=16 * 2**20, middlewares=[_explained])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/inference/v1/generate", self._generate),
                web.post("/inference/v1/abort_requests", self._abort),
                web.post("/update_weights", self._update),
            ]
        )
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _generate(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        job = self._job(asked, request.headers)
        self._engine.submit(job)
        result = await asyncio.wrap_future(job.result)
        self._note(request, job, result)
        return web.json_response(self._answer(asked, job, result))

    async def _abort(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        ids = asked.get("request_ids")
        if not isinstance(ids, list):
            raise BadRequestError("Missing 'request_ids' in request body")
        self._engine.abort(ids)
        return web.Response()

    async def _update(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        try:
            params = await asyncio.to_thread(model.load, Path(asked["path"]))
            version = str(asked["version"])
        except (KeyError, TypeError, OSError, ValueError) as error:
            raise BadRequestError(f"expected path and version of a weight file: {error!r}") from error
        await asyncio.wrap_future(self._engine.update(params, version))
        return web.json_response({"version": version})

    def _job(self, asked: Mapping[str, Any], headers: Mapping[str, str]) -> Job:
        prompt, sampling = asked.get("token_ids"), asked.get("sampling_params")
        if not isinstance(prompt, list) or not prompt or not isinstance(sampling, dict):
            raise BadRequestError("token_ids, a non-empty list of ints, and the object sampling_params are required")
        room = CONTEXT - len(prompt)
        limit = sampling.get("max_tokens") or room
        if room < 1 or limit > room:
            raise BadRequestError(
                f"This model's maximum context length is {CONTEXT} tokens. However, you requested {limit} output tokens"
                f" and your prompt contains {len(prompt)} input tokens."
            )
        if sampling.get("stop") or sampling.get("n", 1) != 1 or (sampling.get("logprobs") or 0) > 1:
            raise BadRequestError("stop strings, n > 1 and logprobs > 1 are not supported")
        stops = [*(() if sampling.get("ignore_eos") else self._eos_ids), *(sampling.get("stop_token_ids") or ())]
        if len(set(stops)) > MOST_STOPS:
            raise BadRequestError(f"at most {MOST_STOPS} stop_token_ids are supported, those of the model included")
        return Job(
            request_id=str(asked.get("request_id") or uuid.uuid4().hex),
            prompt=prompt,
            limit=limit,
            temperature=float(sampling.get("temperature", 1.0)),
            top_p=float(sampling.get("top_p", 1.0)),
            stop_ids=tuple(dict.fromkeys(stops)),
            seed=self._seed(sampling.get("seed"), headers.get(_SEED), len(prompt)),
        )

    def _seed(self, asked: int | None, rollout: str | None, length: int) -> int:
        """Return the request's seed; else one by rollout and turn, independent of the order of requests.

        Else the next one.
        """
        if asked is not None:
            return asked
        if rollout is not None:
            return crc32(f"{rollout} {length}".encode())
        return self._chance.getrandbits(32)

    def _answer(self, asked: Mapping[str, Any], job: Job, result: Result) -> dict[str, Any]:
        finish, stop = self._finish(job, result)
        wants_logprobs = asked["sampling_params"].get("logprobs") is not None
        size = len(result.ids)
        choice = {
            "index": 0,
            "token_ids": result.ids,
            "finish_reason": finish,
            "stop_reason": stop,
            "logprobs": {"content": _logprobs(result)} if wants_logprobs else None,
            "weight_versions": [{"version": result.version, "start": 0, "end": size}] if size else [],
        }
        usage = {"prompt_tokens": len(job.prompt), "completion_tokens": size, "total_tokens": len(job.prompt) + size}
        return {
            "request_id": job.request_id,
            "output_mode": "tokens",
            "choices": [choice],
            "usage": usage,
            "prompt_token_ids": job.prompt if asked.get("return_token_ids") else None,
        }

    def _finish(self, job: Job, result: Result) -> tuple[str, int | None]:
        if result.is_aborted:
            return "abort", None
        last = result.ids[-1]
        if last not in job.stop_ids:
            return "length", None
        return "stop", None if last in self._eos_ids else last

    def _note(self, request: web.Request, job: Job, result: Result) -> None:
        if self._log is None:
            return
        line = {
            "request_id": job.request_id,
            "rollout_id": request.headers.get(_ROLLOUT, ""),
            "prompt_ids": job.prompt,
            "ids": result.ids,
            "logprobs": result.logprobs,
            "version": result.version,
            "temperature": job.temperature,
        }
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()


def _logprobs(result: Result) -> list[dict[str, Any]]:
    entries = []
    for token, logprob, rank in zip(result.ids, result.logprobs, result.ranks, strict=True):
        own = {"token_id": token, "logprob": logprob, "rank": rank}
        entries.append({**own, "top_logprobs": [own]})
    return entries


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except ValueError as error:
        raise BadRequestError(f"JSON decode error: {error}") from error
    if not isinstance(found, dict):
        raise BadRequestError(f"expected a JSON object, got {type(found).__name__}")
    return found


@web.middleware
async def _explained(request: web.Request, handler: Any) -> Any:
    try:
        return await handler(request)
    except BadRequestError as error:
        detail = {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}
        return web.json_response({"error": detail}, status=400)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the tokenizer, with weights in model.npz")
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="JSONL file for all sampled tokens")
    options = parser.parse_args()
    keep_compiled(options.folder.parent / "compiled")
    engine = Engine(model.load(options.folder / "model.npz"), "v0")
    with open(options.log or "/dev/null", "a", encoding="utf-8") as log:  # noqa: PTH123 - a path or the bin
        server = TokenServer(engine, eos_ids=tokenizer.stop_ids(options.folder), seed=options.seed, log=log)
        web.run_app(server.app(), host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
