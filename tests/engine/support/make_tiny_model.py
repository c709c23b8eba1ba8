"""Make a model of random weights with a byte-level tokenizer, from a JSON object on stdin; the engine's Python runs it.

Each family's tokenizer has the family's own control tokens, and is trained on the standard library's sources.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def main() -> None:
    """Write tokenizer and weights into the folder that is named."""
    wanted = json.load(sys.stdin)
    torch.manual_seed(0)
    tokenizer = _tokenizer(wanted)
    tokenizer.save_pretrained(wanted["folder"])
    _model(tokenizer, wanted["stops"]).save_pretrained(wanted["folder"])


def _tokenizer(wanted: dict[str, Any]) -> Any:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=4000, initial_alphabet=alphabet, show_progress=False)
    backend.train([str(path) for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100]], trainer)
    for is_special, texts in ((True, wanted["special"]), (False, wanted["marks"])):
        backend.add_tokens([AddedToken(text, special=is_special, normalized=False) for text in texts])
    first = wanted["begin"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=wanted["stops"][0], bos_token=first)
    tokenizer.chat_template = wanted["template"]
    return tokenizer


def _model(tokenizer: Any, stops: list[str]) -> Any:
    """Return two layers of a head size that vLLM's attention for CPUs knows."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.convert_tokens_to_ids(stops),
    )
    return LlamaForCausalLM(config)


if __name__ == "__main__":
    main()
