"""An instant token-level server (vLLM's protocol) in a separate process; it reads the turn from the prompt's bytes.

Every prompt holds one opening of an assistant turn for each turn so far, the one to sample included; those are counted
in the bytes of the request, which is never parsed. `python -m benchmarks.tokens.token_server FOLDER` serves what
`write` put there and prints `listening on URL` when ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.rollouts import mock_server
from benchmarks.tokens import conversations

TEMPLATE = "qwen3"
CALL = '\n<tool_call>\n{"name": "noop", "arguments": {}}\n</tool_call><|im_end|>'
_SENTENCE = "What is the weather in Oslo, and in Bergen? It is clear. "


def write(folder: Path, *, turns: int, tokens: int) -> Path:
    """Write the tokenizer's folder and the answers: turns of about `tokens` ids each that call a tool, then a last."""
    from tokenizers import Tokenizer

    conversations.write_folder(folder, conversations.templates()[TEMPLATE])
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(text: str) -> list[int]:
        return list(backend.encode(text, add_special_tokens=False).ids)

    rest = tokens - len(ids(CALL))
    thought = (_SENTENCE * (1 + rest // len(ids(_SENTENCE)))).strip()
    answers = {"opener": ids("<|im_start|>assistant"), "call": ids(thought + CALL), "last": ids("Done.<|im_end|>")}
    (folder / "answers.json").write_text(json.dumps({**answers, "turns": turns}), encoding="utf-8")
    return folder


class TokenScript(mock_server.Script):
    """The two responses, with an echo of the prompt if requested."""

    def __init__(self, folder: Path, *, latency: float) -> None:
        found = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        self.latency = latency
        self.requests = 0
        self._turns = found["turns"]
        self._marks = [separator.join(map(str, found["opener"])).encode() for separator in (",", ", ")]
        self._bodies = [_body(found["last"]), _body(found["call"])]
        self._answers = [_response(body) for body in self._bodies]

    def answer(self, head: bytes, body: bytes) -> tuple[bytes, float]:
        """Return the whole HTTP answer and the seconds to hold it back."""
        if head.startswith(b"GET ") or b"abort_requests" in head[:60]:
            return _response(b'{"data":[{"id":"m"}]}'), 0.0
        self.requests += 1
        calls = sum(map(body.count, self._marks)) < self._turns
        if b'"return_token_ids"' not in body:
            return self._answers[calls], self.latency
        start = body.index(b'"token_ids"')
        echo = body[body.index(b"[", start) : body.index(b"]", start) + 1]
        return _response(self._bodies[calls].replace(b"null", echo, 1)), self.latency


def _body(ids: list[int]) -> bytes:
    entries = [{"token_id": token, "logprob": -((place % 97) + 1) / 64, "rank": 1} for place, token in enumerate(ids)]
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "stop_reason": ids[-1],
        "token_ids": ids,
        "logprobs": {"content": [{**entry, "top_logprobs": [entry]} for entry in entries]},
        "weight_versions": [{"version": "v1", "start": 0, "end": len(ids)}],
    }
    usage = {"prompt_tokens": 1000, "completion_tokens": len(ids)}
    answer: dict[str, Any] = {"prompt_token_ids": None, "request_id": "r", "usage": usage, "choices": [choice]}
    return json.dumps(answer, separators=(",", ":")).encode()


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def running(folder: Path, *, latency_ms: float = 0.0) -> Iterator[str]:
    """Run the server in its own process while the block runs; yields the root address."""
    command = [sys.executable, "-m", "benchmarks.tokens.token_server", str(folder), "--latency-ms", str(latency_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"the mock server did not start, it said {line!r}")
            yield line.split()[-1].removesuffix("/v1")
        finally:
            process.terminate()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    options = parser.parse_args()
    asyncio.run(mock_server.serve(TokenScript(options.folder, latency=options.latency_ms / 1000)))


if __name__ == "__main__":
    main()
