"""The baselines at token level: a simple aiohttp loop that appends ids or renders everything again.

`append` keeps one list of ids, masks and logprobs, adds what the server sampled and the encoded result of the tool, and
has the list serialised for each request; `bytes` keeps the serialised list as well and appends to that, as the
framework does; `render` writes the whole conversation with the chat template and encodes it, every turn. All send the
same ids as the framework. Prints one JSON object; run by `framework_cost` in a separate process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import time
from pathlib import Path
from typing import Any

import aiohttp

_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)
_HEAD = {"model": "m", "sampling_params": {"max_tokens": 4096, "logprobs": 0, "detokenize": False}}
TOOL = {
    "type": "function",
    "function": {
        "name": "noop",
        "description": "Does nothing.",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}
PROMPT = "Call the tool until you are told to stop, then say that you are done."
RESULT = "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"


class Prompt:
    """The ids so far with masks and logprobs, and optionally their bytes."""

    def __init__(self, ids: list[int], *, keeps_bytes: bool) -> None:
        self.ids = ids
        self.masks = [-100] * len(ids)
        self.logprobs: list[float | None] = [None] * len(ids)
        self._bytes = bytearray(json.dumps(ids)[1:-1].encode()) if keeps_bytes else None

    def add(self, ids: list[int], masks: list[int], logprobs: list[Any]) -> None:
        """Append."""
        self.ids += ids
        self.masks += masks
        self.logprobs += logprobs
        if self._bytes is not None:
            self._bytes += b", " + json.dumps(ids)[1:-1].encode()

    def body(self) -> bytes:
        """Return the body of a request."""
        if self._bytes is None:
            return json.dumps({**_HEAD, "token_ids": self.ids}).encode()
        return json.dumps(_HEAD).encode()[:-1] + b', "token_ids": [' + self._bytes + b"]}"


class Loop:
    """Runs rollouts one after the other or concurrently; `marks` are the process' CPU seconds at each request."""

    def __init__(self, url: str, folder: Path, mode: str) -> None:
        from jinja2 import Environment
        from tokenizers import Tokenizer

        self._url = url
        self._mode = mode
        self._backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(
            (folder / "chat_template.jinja").read_text(encoding="utf-8")
        )
        self.marks: list[list[float]] = []

    async def run_rollout(self, session: aiohttp.ClientSession) -> int:
        """Run one rollout; returns its number of turns."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
        prompt = Prompt(self._rendered(messages), keeps_bytes=self._mode == "bytes")
        marks: list[float] = []
        self.marks.append(marks)
        while True:
            marks.append(time.process_time())
            choice = await self._ask(session, prompt)
            sampled = choice["token_ids"]
            prompt.add(sampled, sampled, [entry["logprob"] for entry in choice["logprobs"]["content"]])
            text = self._backend.decode(sampled, skip_special_tokens=False)
            calls = [json.loads(call) for call in _CALL.findall(text)]
            if not calls:
                marks.append(time.process_time())
                return len(marks) - 1
            messages += [{"role": "assistant", "content": text.removesuffix("<|im_end|>")}]
            messages += [{"role": "tool", "content": "{}"} for _ in calls]
            if self._mode == "render":
                prompt = Prompt(self._rendered(messages), keeps_bytes=False)
                continue
            new = self._backend.encode(RESULT, add_special_tokens=False).ids
            prompt.add(new, [-100] * len(new), [None] * len(new))

    async def _ask(self, session: aiohttp.ClientSession, prompt: Prompt) -> Any:
        async with session.post(
            f"{self._url}/inference/v1/generate", data=prompt.body(), headers={"Content-Type": "application/json"}
        ) as response:
            response.raise_for_status()
            return (await response.json())["choices"][0]

    def _rendered(self, messages: list[dict[str, Any]]) -> list[int]:
        text = self._template.render(messages=messages, tools=[TOOL], add_generation_prompt=True)
        return list(self._backend.encode(text, add_special_tokens=False).ids)


async def measure(loop: Loop, rollouts: int, concurrency: int) -> dict[str, Any]:
    """Run the rollouts after a round that opens the connections."""
    slots = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def limited() -> int:
            async with slots:
                return await loop.run_rollout(session)

        await asyncio.gather(*(limited() for _ in range(concurrency)))
        loop.marks.clear()
        before = cpu_seconds()
        turns = sum(await asyncio.gather(*(limited() for _ in range(rollouts))))
        cpu = cpu_seconds() - before
    return {"turns": turns, "cpu_per_turn_ms": 1000 * cpu / turns, "marks": loop.marks}


def cpu_seconds() -> float:
    """Return user and system seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=["append", "bytes", "render"], default="append")
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=1)
    options = parser.parse_args()
    loop = Loop(options.url, options.folder, options.mode)
    print(json.dumps(asyncio.run(measure(loop, options.rollouts, options.concurrency))))


if __name__ == "__main__":
    main()
