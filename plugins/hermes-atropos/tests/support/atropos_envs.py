"""Environments in hermes-agent's shape, and models for them that need no server."""

from __future__ import annotations

import json

from hermes_atropos import APIServerConfig, HermesAgentBaseEnv, HermesAgentEnvConfig
from hermes_core.contracts.model import ModelReply, RequestedCall
from hermes_core.contracts.tokens import IGNORED, Exactness, TrainingSample

PLUGINS = {
    "allow": ["hermes-sandbox", "hermes-tools", "hermes-models", "hermes-tokens", "hermes-runner"],
    "extra": ["rollout_components", "atropos_components"],
}
"""The core's own plugin and those of the tests; the parser of the default is another package's."""


def config(**fields):
    defaults = {
        "group_size": 2,
        "total_steps": 2,
        "ensure_scores_are_not_same": False,
        "tool_call_parser": None,
        "plugins": PLUGINS,
    }
    if "distribution" not in fields:
        defaults["enabled_toolsets"] = ["testing"]
    return HermesAgentEnvConfig(**{**defaults, **fields})


def server(**fields):
    return APIServerConfig(**{"base_url": "http://127.0.0.1:9/v1", "model_name": "m", "api_key": "x", **fields})


def says(text, **fields):
    return ModelReply(content=text, **fields)


def calls(name, arguments="{}"):
    call = RequestedCall(id=f"c_{name}", name=name, arguments=arguments)
    return ModelReply(content=None, tool_calls=(call,), finish_reason="tool_calls")


class ChatDouble:
    """A chat model that answers by a function of the request; keeps the requests."""

    def __init__(self, answer=None):
        self._answer = answer or (lambda request: says("done"))
        self.requests = []
        self.checked = self.closed = 0

    @property
    def provenance(self):
        return {"protocol": "double", "model_name": "double"}

    async def check(self):
        self.checked += 1

    async def chat(self, request):
        self.requests.append(request)
        reply = self._answer(request)
        reply = await reply if hasattr(reply, "__await__") else reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def aclose(self):
        self.closed += 1


class TokenDouble(ChatDouble):
    """The same with recorded tokens; replace `samples` to set a rollout's samples."""

    def __init__(self, answer=None, samples=None, exactness=None):
        super().__init__(answer)
        self.make_samples = samples or (lambda session: [session.sample()])
        self.report = exactness or Exactness()

    def session(self, rollout_id):
        return SessionDouble(self, rollout_id)


class SessionDouble:
    def __init__(self, model, rollout_id):
        self.model = model
        self.rollout_id = rollout_id
        self.turns = 0
        self.messages = []

    async def chat(self, request):
        reply = await self.model.chat(request)
        self.turns += 1
        return reply

    def record_message(self, message):
        self.messages.append(message)

    def sample(self, branch=0, reason=""):
        """Two prompt ids and two sampled ids a turn."""
        tokens = [number for turn in range(self.turns) for number in (1, 2, 10 + turn, 3)]
        masks = [token if at % 4 >= 2 else IGNORED for at, token in enumerate(tokens)]
        logprobs = [-0.5 if mask != IGNORED else None for mask in masks]
        return TrainingSample(tokens=tokens, masks=masks, logprobs=logprobs, branch=branch, reason=reason)

    def samples(self):
        return self.model.make_samples(self) if self.turns else []

    def exactness(self):
        return self.model.report

    def managed_state(self):
        return {"nodes": [{"tokens": list(sample.tokens)} for sample in self.samples()]}


class PuzzleEnv(HermesAgentBaseEnv):
    """An environment as written for hermes-agent: a dataset in memory, an async reward."""

    name = "puzzle"
    model = None
    reward_needs_sandbox = False

    def build_model(self):
        return self.model

    async def setup(self):
        self.puzzles = [{"id": f"p{n}", "question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(50)]
        self.position = 0
        self.rewarded = []

    async def get_next_item(self):
        item = self.puzzles[self.position % len(self.puzzles)]
        self.position += 1
        return item

    def format_prompt(self, item):
        return item["question"]

    async def compute_reward(self, item, result, ctx):
        self.rewarded.append((item["id"], result.final_response))
        return 1.0 if result.final_response == item["answer"] else 0.0

    async def evaluate(self, *args, **kwargs):
        outcomes = [await self.run_item(item) for item in self.puzzles[:3]]
        self.evaluated = [(outcome.split, outcome.reward) for outcome in outcomes]
        return self.evaluated

    @classmethod
    def config_init(cls):
        return config(), [server()]


def environment(model, kind=PuzzleEnv, servers=None, **fields):
    """Make an environment over a model double."""
    made = type(kind.__name__, (kind,), {"model": model})
    return made(config(**fields), servers or [server()])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
