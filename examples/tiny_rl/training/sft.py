"""Supervised learning of the tool-call format on demonstrations; loss on the assistant's tokens only."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from tiny_rl.model import tokenizer
from tiny_rl.model import transformer as model
from tiny_rl.model.compilation_cache import keep_compiled
from tiny_rl.model.padded_batches import padded
from tiny_rl.model.transformer import Array, Params
from tiny_rl.tasks import COLOURS, demonstration, tasks
from tiny_rl.training import optimizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOOLS: Final = ({"type": "function", "function": {"name": "read_file"}},)
_ASSISTANT: Final = re.compile(r"(?<=<\|im_start\|>assistant\n).*?<\|im_end\|>", re.DOTALL)
_POOL: Final = 16
"""The number of batches drawn together and sorted by length, to reduce padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sequence, and for each of its ids whether it has loss."""

    ids: Sequence[int]
    trained: Sequence[bool]


def texts(seed: int) -> Iterator[str]:
    """Yield demonstrations of training tasks forever, as the chat template writes them."""
    chance = random.Random(f"sft-{seed}")  # noqa: S311 - reproducible examples, nothing to guard
    return (tokenizer.render(demonstration(task, chance), TOOLS) for task in tasks("train", seed))


def encoded(coder: Tokenizer, text: str) -> Example:
    """Encode a conversation; the assistant's tokens have loss, including its closing token."""
    encoding = coder.encode(text.removesuffix("\n"))
    spans = [match.span() for match in _ASSISTANT.finditer(text)]
    trained = [any(start <= first and last <= end for start, end in spans) for first, last in encoding.offsets]
    return Example(ids=encoding.ids, trained=trained)


def batches(examples: Iterable[Example], size: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield tokens and loss weights [size, time], with examples of similar length together."""
    source = iter(examples)
    chance = random.Random(seed)  # noqa: S311 - reproducible order, nothing to guard
    while pool := sorted(islice(source, size * _POOL), key=lambda example: len(example.ids)):
        chunks = [pool[start : start + size] for start in range(0, len(pool), size)]
        chance.shuffle(chunks)
        for chunk in chunks:
            yield padded([one.ids for one in chunk]), padded([one.trained for one in chunk]).astype(np.float32)


def _loss(params: Params, tokens: Array, weights: Array) -> Array:
    return -jnp.sum(model.logprobs(params, tokens) * weights) / jnp.sum(weights)


def _step(
    params: Params, moments: optimizer.Moments, tokens: Array, weights: Array, rate: Array
) -> tuple[Params, optimizer.Moments, Array]:
    loss, gradients = jax.value_and_grad(_loss)(params, tokens, weights)
    params, moments, _ = optimizer.step(params, gradients, moments, rate)
    return params, moments, loss


step: Final = jax.jit(_step)


def learn(
    params: Params,
    coder: Tokenizer,
    *,
    steps: int,
    seed: int,
    size: int = 32,
    rate: float = 1e-3,
    report: Callable[[dict[str, Any]], object] = lambda _: None,
) -> tuple[Params, list[float]]:
    """Return the weights after `steps` batches, and each batch's loss; the rate warms up and falls off."""
    moments = optimizer.start(params)
    losses: list[float] = []
    began = time.monotonic()
    source = (encoded(coder, text) for text in texts(seed))
    for number, (tokens, weights) in enumerate(islice(batches(source, size, seed), steps)):
        warm, left = min(1.0, (number + 1) / 20), 1 - number / steps
        params, moments, loss = step(params, moments, tokens, weights, jnp.float32(rate * warm * (0.1 + 0.9 * left)))
        losses.append(float(loss))
        if number % 20 == 19:
            report({"sft_step": number + 1, "loss": losses[-1], "seconds": round(time.monotonic() - began, 1)})
    return params, losses


def teach(folder: Path, *, steps: int, seed: int) -> list[float]:
    """Write a folder with a tokenizer and weights that know the format; returns the losses."""
    coder = tokenizer.train(islice(texts(seed), _TOKENIZER_TEXTS), COLOURS)
    tokenizer.save(coder, folder)
    params = model.create(model.Shape(vocabulary=coder.get_vocab_size()), seed)
    params, losses = learn(params, coder, steps=steps, seed=seed, report=_print)
    model.save(params, folder / "model.npz")
    return losses


_TOKENIZER_TEXTS: Final = 1000


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Teach a fresh model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="gets the tokenizer and model.npz")
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    keep_compiled(options.folder.parent / "compiled")
    teach(options.folder, steps=options.steps, seed=options.seed)


if __name__ == "__main__":
    main()
