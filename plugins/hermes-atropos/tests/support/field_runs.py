"""Small runs of both kinds of environments against servers on the loopback interface, and what can be seen of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs import NotesEnv, agent_config, call_of
from aiohttp import web
from atropos_envs import PuzzleEnv, config, lines, server
from chat_server import completion, serving_answers
from chatml_folder import TEMPLATE, chatml_folder
from token_server import Sampled, TokenServer, serving_tokens

from hermes_atropos import AtroposAgent, HermesAgentBaseEnv, HermesAgentLoop
from hermes_core.contracts.errors import HermesError
from hermes_tokens import ChatTokenizer

REASONING = TEMPLATE.replace(
    "{% if thinking %}<think>\n{% endif %}", "{% if reasoning_effort %}<think>{{ reasoning_effort }}\n{% endif %}"
)
# The text before a message depends on the number of messages, so nothing can be appended.
REWRITING = TEMPLATE.replace("<|im_start|>{{ message.role }}\n", "<|im_start|>{{ message.role }} {{ loop.index }}\n")
BARE = TEMPLATE.replace("{% if thinking %}<think>\n{% endif %}", "")
PROTOCOLS = {"vllm": "vllm", "sglang": "sglang", "atropos": "vllm"}


@dataclass
class Seen:
    """The visible results of a run. `requests` are bodies of a chat server, or sampling parameters."""

    requests: list[Any] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)
    ledger: list[Any] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    workers: int = 0
    error: str = ""

    @property
    def system(self):
        """The system message, or the beginning of the prompt."""
        if self.prompts:
            return self.prompts[0].partition("<|im_start|>user")[0]
        first = self.requests[0]["messages"][0]
        return first["content"] if first["role"] == "system" else None

    @property
    def tools(self):
        offered = self.requests[0].get("tools") or []
        return sorted(tool["function"]["name"] for tool in offered) or self.system

    @property
    def answers(self):
        """The tool results as the model read them."""
        return [m["content"] for m in self.requests[-1]["messages"][2:] if m["role"] in {"tool", "user"}]

    @property
    def about(self):
        return self.groups[0]["overrides"][0]

    @property
    def reasons(self):
        return [(line["end"], line["reason"].partition("written to")[0]) for line in self.ledger]


class Place:
    """Where runs write, and the tokenizers that they may use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        templates = {"plain": TEMPLATE, "effort": REASONING, "rewriting": REWRITING, "bare": BARE}
        self.tokenizers = {name: str(chatml_folder(folder / name, template=text)) for name, text in templates.items()}
        self.data = folder / "data.jsonl"
        records = [("one?", "uno?", "train"), ("two?", "due?", "test")]
        self.data.write_text(
            "".join(json.dumps({"prompt": p, "other": o, "split": s}) + "\n" for p, o, s in records), encoding="utf-8"
        )
        self._number = 0
        self._runs: dict[str, Seen] = {}

    async def once(self, kind, phase, **fields):
        """Return the run that many rows are compared with; it runs at the first call."""
        key = repr((kind, phase, sorted(fields.items())))
        if key not in self._runs:
            self._runs[key] = await run_process(self, kind, phase, **fields)
        return self._runs[key]

    def new(self):
        self._number += 1
        made = self.folder / f"run{self._number}"
        made.mkdir()
        return made


class FieldEnv(PuzzleEnv):
    """Gives what the dataset has, else puzzles."""

    reward_needs_sandbox = False

    async def setup(self):
        await super().setup()
        if self.config.dataset_name is not None:
            await HermesAgentBaseEnv.setup(self)

    async def get_next_item(self):
        return await (HermesAgentBaseEnv if self.config.dataset_name else PuzzleEnv).get_next_item(self)

    def format_prompt(self, item):
        return (HermesAgentBaseEnv if self.config.dataset_name else PuzzleEnv).format_prompt(self, item)

    async def compute_reward(self, item, result, ctx):
        return 1.0


class NeedyEnv(FieldEnv):
    """Its reward wants a sandbox."""

    reward_needs_sandbox = True


class OwnCodeEnv(FieldEnv):
    """Its reward calls the servers in every way of an environment's own code; those are `requests[1:]`."""

    async def compute_reward(self, item, result, ctx):
        messages = [{"role": "user", "content": "own?"}]
        await self.server.chat_completion(messages=messages)
        await HermesAgentLoop(self.server, [], set(), max_turns=1).run(list(messages))
        await AtroposAgent(self.server).run("own?")
        if self.server.is_recording:
            async with self.server.managed_server() as session:
                await session.chat_completion(messages=messages)
            async with self.server.managed_server() as session:
                await HermesAgentLoop(session, [], set(), max_turns=1).run(list(messages))
        return 1.0


class FieldAgentEnv(NotesEnv):
    """Works on what the dataset has, else on notes; scores everything alike."""

    async def get_next_item(self):
        return await (HermesAgentBaseEnv if self.config.dataset_name else NotesEnv).get_next_item(self)

    def build_task(self, item):
        return item["prompt"] if self.config.dataset_name else super().build_task(item)

    async def setup_trajectory_workspace(self, item, **_given):
        return {}

    async def verify_and_score_trajectory(self, item, final_response, **_given):
        return 1.0, {}


def _reply(body):
    """Call a tool in the first turn, and answer in the second."""
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    is_first = not any(message["role"] == "assistant" for message in body["messages"])
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if not is_first:
        return {**completion("done"), "usage": usage}
    if "<tools>" in str(body["messages"][0]["content"]):
        text = call_of("terminal", command="exit 4") + call_of("long_text")
        return {**completion(text), "usage": usage}
    if "long_text" in names:
        function = {"name": "long_text", "arguments": "{}"}
        return {**completion(None, tool_calls=[{"id": "c", "type": "function", "function": function}]), "usage": usage}
    return {**completion("CALL noop"), "usage": usage}


async def run_process(place, kind, phase="chat", **fields):
    """Process a group or two; returns what was seen, an error of the framework included."""
    folder, seen = place.new(), Seen()
    fields = {name: value(place, folder) if callable(value) else value for name, value in fields.items()}
    defaults = {"group_size": 1, "total_steps": 1, "data_path_to_save_groups": str(folder / "g.jsonl")}
    toolsets = ["default" if issubclass(kind, NotesEnv) else "testing", "atropos_testing"]
    defaults["enabled_toolsets"] = None if "distribution" in fields else toolsets
    defaults["ledger_path"] = str(folder / "ledger.jsonl")
    values = {**defaults, **fields}
    try:
        await (_chat if phase == "chat" else _tokens)(place, kind, phase, values, seen)
    except HermesError as error:
        seen.error = str(error)
    if (ledger := values["ledger_path"]) is not None and Path(ledger).exists():
        seen.ledger = lines(Path(ledger))
    written = [path for path in folder.rglob("*") if path.is_file()]
    of_groups = [path for path in sorted(written) if path.suffix == ".jsonl" and str(path) != ledger]
    seen.groups = [group for path in of_groups for group in lines(path) if "tokens" in group]
    seen.files = sorted(path.name for path in written)
    return seen


def _new_env(kind, values, url, server_type):
    values = dict(values)
    made = (agent_config if issubclass(kind, NotesEnv) else config)(**values)
    return kind(made, [server(base_url=url, server_type=server_type)])


async def _chat(_place, kind, _phase, values, seen):
    async def handler(request):
        body = await request.json()
        seen.requests.append(body)
        return web.json_response(_reply(body))

    async with serving_answers() as served:
        served.set_answers(handler)
        await _process(_new_env(kind, values, served.url, "openai"), seen)


async def _tokens(place, kind, phase, values, seen):
    values = {"tokenizer_name": place.tokenizers["plain"], "tool_call_parser": None, **values}
    if issubclass(kind, NotesEnv):
        values.pop("tool_call_parser")
    tokenizer = ChatTokenizer.load(values["tokenizer_name"])

    def sample(prompt, sampling):
        text = tokenizer.decode(prompt)
        seen.requests.append(dict(sampling))
        seen.prompts.append(text)
        said = "done<|im_end|>" if text.count("<|im_start|>assistant") > 1 else "CALL noop<|im_end|>"
        ids = tokenizer.encode_scaffold(said)
        return Sampled(ids=ids, logprobs=[-0.5] * len(ids), stop_id=ids[-1])

    async with serving_tokens(TokenServer(phase, sample)) as served:
        await _process(_new_env(kind, values, f"{served.url}/v1", PROTOCOLS[phase]), seen)


async def _process(env, seen):
    seen.workers = env.max_num_workers
    await env.process_manager()
