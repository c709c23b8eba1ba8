"""Run the peers of the token scenarios with their own code: they get jobs and return the tokens to train on.

Runs with the Python of an environment that has the peers; what it lacks is reported as missing:
    python -m benchmarks.tokens.scenario_peers --jobs JOBS.json --out RESULTS.json

All of them: `pip install transformers atroposlib trl accelerate datasets torch renderers verifiers tinker-cookbook`;
`verl` and `areal` without dependencies, and what AReaL then asks for by name (ray, torchdata, numba and the like).

A result has the `exchanges` (prompt ids and sampled ids of every turn), `samples` (ids and masks) where the peer makes
its own, or `error` (what the peer raised), `unsupported` (why it does not run the case) or `absent` (what is not
installed). The sampler is a script: turn n samples the ids that the job holds, whatever the prompt is.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import sys
import types
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.tokens import verifiers_peer

Job = dict[str, Any]
Result = dict[str, Any]


class Unsupported(Exception):  # noqa: N818 - a finding, not a failure of ours
    """The peer cannot run this case."""


def _module(name: str) -> Any:
    """Import a peer's module, which may be missing and have no types."""
    return importlib.import_module(name)


def _tokenizer(job: Job) -> Any:
    folder = Path(job["folder"])
    return _module("transformers").PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=(folder / "chat_template.jinja").read_text(encoding="utf-8"),
    )


def _render(tokenizer: Any, job: Job, messages: list[Any]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tools=job["tools"], tokenize=False, add_generation_prompt=True)
    return list(tokenizer.encode(text, add_special_tokens=False))


def _re_rendered(job: Job, message: Callable[[Any], Any]) -> Result:
    """Render the whole conversation and encode it, every turn."""
    tokenizer, messages, exchanges = _tokenizer(job), list(job["first"]), []
    for turn in job["turns"]:
        exchanges.append([_render(tokenizer, job, messages), turn["ids"]])
        messages += [message(turn), *turn["new"]]
    return {"exchanges": exchanges}


def full_render(job: Job) -> Result:
    """Like a chat completions client: parsed messages, rendered again."""
    return _re_rendered(job, lambda turn: turn["message"])


def raw_render(job: Job) -> Result:
    """The same, with each turn's text in place of the parsed message."""
    return _re_rendered(job, lambda turn: {"role": "assistant", "content": turn["text"]})


def atropos(job: Job) -> Result:
    """`ManagedServer` with tools; its nodes are its samples."""
    module = _module("atroposlib.envs.server_handling.managed_server")

    tokenizer, turns = _tokenizer(job), iter(job["turns"])
    exchanges: list[Any] = []

    class Server:
        config = types.SimpleNamespace(model_name="m")

        async def tokens_and_logprobs_completion(self, **request: Any) -> Any:
            turn = next(turns)
            exchanges.append([list(request["input_ids"]), turn["ids"]])
            return request["input_ids"], [list(turn["ids"])], [[-0.5] * len(turn["ids"])], [turn["finish_reason"]]

    async def run_job() -> Any:
        managed = module.ManagedServer(Server(), tokenizer=tokenizer, tool_parser="hermes")
        messages = list(job["first"])
        for turn in job["turns"]:
            done = await managed.chat_completion(messages=messages, tools=job["tools"], n=1)
            messages += [{"role": "assistant", "content": done.choices[0].message.content}, *turn["new"]]
        return managed.get_state()["nodes"]

    nodes = asyncio.run(run_job())
    return {"exchanges": exchanges, "samples": [[node.tokens, node.masked_tokens] for node in nodes]}


def trl(job: Job) -> Result:
    """`GRPOTrainer._get_tool_suffix_ids` after each turn, on the template that the trainer chooses."""
    utils = _module("trl.chat_template_utils")
    suffix = _module("trl.trainer.grpo_trainer").GRPOTrainer._get_tool_suffix_ids  # noqa: SLF001 - its token path

    tokenizer = _tokenizer(job)
    if not utils.is_chat_template_prefix_preserving(tokenizer):
        tokenizer.chat_template = utils.get_training_chat_template(tokenizer)
    trainer = types.SimpleNamespace(
        _is_vlm=False, processing_class=tokenizer, _tokenizer=tokenizer, chat_template=None, chat_template_kwargs={}
    )
    prompt, exchanges = _render(tokenizer, job, job["first"]), []
    for turn in job["turns"]:
        exchanges.append([prompt, turn["ids"]])
        if any(message["role"] != "tool" for message in turn["new"]):
            raise Unsupported("its loop goes on after tool results only")
        if turn["new"]:
            prompt = prompt + turn["ids"] + list(suffix(trainer, turn["new"]))
    return {"exchanges": exchanges}


def areal(job: Job) -> Result:
    """`concat_prompt_token_ids_with_parent` on chains of interactions."""
    _module("areal.api")
    client = _module("areal.experimental.openai.client")
    kinds = _module("areal.experimental.openai.types")
    tokenizer, exchanges, parent = _tokenizer(job), list[Any](), None
    history: list[Any] = []
    new = list(job["first"])
    for turn in job["turns"]:
        prompt = client.concat_prompt_token_ids_with_parent(new, parent, tokenizer, tools=job["tools"])
        exchanges.append([prompt, turn["ids"]])
        answer = client.ModelResponse(
            input_tokens=prompt,
            output_tokens=list(turn["ids"]),
            stop_reason=turn["finish_reason"],
            tokenizer=tokenizer,
        )
        history = [*history, *new]
        parent = kinds.InteractionWithTokenLogpReward(
            model_response=answer, messages=history, output_message_list=[turn["message"]]
        )
        history, new = [*history, turn["message"]], list(turn["new"])
    return {"exchanges": exchanges}


def verl(job: Job) -> Result:
    """`QwenContinuousTokenBuilder`, loaded without the package's own imports (Ray among them)."""
    for name in ("verl", "verl.utils"):
        _bare(name)
    module = _module("verl.utils.tokenizer.continuous_token")
    builder = module.QwenContinuousTokenBuilder(_tokenizer(job))
    messages, exchanges = list(job["first"]), []
    prompt = builder.build_initial_tokens(messages, tools=job["tools"])
    for turn in job["turns"]:
        exchanges.append([list(prompt), turn["ids"]])
        merged = builder.merge_assistant_tokens(prompt, turn["ids"]).token_ids
        before = [*messages, turn["message"]]
        messages = [*before, *turn["new"]]
        if turn["new"]:
            prompt = builder.merge_context_tokens(before, messages, merged, tools=job["tools"]).token_ids
    return {"exchanges": exchanges}


def _bare(name: str) -> None:
    """Register a package without running its `__init__`."""
    if name in sys.modules:
        return
    parent, _, last = name.rpartition(".")
    module = types.ModuleType(name)
    if parent:
        module.__path__ = [f"{place}/{last}" for place in sys.modules[parent].__path__]
    else:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = module


def _bridged(job: Job, **options: Any) -> Result:
    configs = _module("renderers")

    tokenizer, tools, messages, exchanges = _tokenizer(job), job["tools"], list(job["first"]), []
    if job["template"] == "qwen3":
        renderer = _module("renderers.qwen3").Qwen3Renderer(tokenizer, configs.Qwen3RendererConfig(**options))
    else:
        config = configs.Qwen35RendererConfig(enable_thinking=True, **options)
        renderer = _module("renderers.qwen35").Qwen35Renderer(tokenizer, config)
    prompt = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    for turn in job["turns"]:
        exchanges.append([list(prompt), turn["ids"]])
        messages += [turn["message"], *turn["new"]]
        if turn["new"]:
            bridge = renderer.bridge_to_next_turn(prompt, turn["ids"], turn["new"], tools=tools)
            fresh = bridge is None
            prompt = (
                renderer.render_ids(messages, tools=tools, add_generation_prompt=True) if fresh else bridge.token_ids
            )
    return {"exchanges": exchanges}


def bridge(job: Job) -> Result:
    """`bridge_to_next_turn` of the hand-written renderer, a full render where it declines."""
    return _bridged(job)


def bridge_all(job: Job) -> Result:
    """The same with `thinking_retention="all"`."""
    return _bridged(job, thinking_retention="all")


def verifiers(job: Job) -> Result:
    """`TrainClient` and its trace graph, over HTTP."""
    return verifiers_peer.run_job(job)


def tinker(job: Job) -> Result:
    """The cookbook's renderer: parses the sampled text and renders the conversation again."""
    if job["template"] != "qwen3":
        raise Unsupported("run on Qwen3 only")
    cookbook = _module("tinker_cookbook.renderers.qwen3")
    renderer, exchanges = cookbook.Qwen3Renderer(_tokenizer(job)), []
    tools = [tool["function"] for tool in job["tools"]]
    messages = [*renderer.create_conversation_prefix_with_tools(tools), *job["first"]]
    for turn in job["turns"]:
        exchanges.append([renderer.build_generation_prompt(messages).to_ints(), turn["ids"]])
        messages += [renderer.parse_response(list(turn["ids"]))[0], *turn["new"]]
    return {"exchanges": exchanges}


SIDES: Final[dict[str, tuple[Callable[[Job], Result], str]]] = {
    "full re-render": (full_render, "transformers"),
    "raw-text re-render": (raw_render, "transformers"),
    "Atropos": (atropos, "atroposlib"),
    "TRL": (trl, "trl"),
    "AReaL": (areal, "areal"),
    "verl continuous token": (verl, "verl"),
    "renderers bridge": (bridge, "renderers"),
    "renderers, retention all": (bridge_all, "renderers"),
    "verifiers": (verifiers, "verifiers"),
    "Tinker cookbook": (tinker, "tinker_cookbook"),
}


def run_job(side: str, job: Job) -> Result:
    """Run one case on one side; an exception of a peer is a result."""
    run, _ = SIDES[side]
    try:
        return run(job)
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except ImportError as error:
        return {"absent": str(error)}
    except Exception as error:  # noqa: BLE001 - as above
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def versions() -> dict[str, str]:
    """Return the versions of the distributions that are here."""
    found: dict[str, str] = {}
    for _, name in SIDES.values():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a file, for the peers log to stdout")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = json.loads(options.jobs.read_text(encoding="utf-8"))
    results = {side: {job["name"]: run_job(side, job) for job in jobs} for side in SIDES}
    options.out.write_text(json.dumps({"versions": versions(), "results": results}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
