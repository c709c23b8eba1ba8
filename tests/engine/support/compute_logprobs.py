"""Print the logprob of each token given all before it, of sequences from stdin; the engine's Python runs it."""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    """Read a folder and sequences, and write one list for each: null for its first token."""
    wanted = json.load(sys.stdin)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(wanted["folder"], dtype=torch.float32)
    json.dump([_logprobs(model, tokens) for tokens in wanted["sequences"]], sys.stdout)


def _logprobs(model: torch.nn.Module, tokens: list[int]) -> list[float | None]:
    ids = torch.tensor([tokens])
    with torch.inference_mode():
        found = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
    return [None, *found[:, 0].tolist()]


if __name__ == "__main__":
    main()
