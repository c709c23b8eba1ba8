"""Tokenizers trained on the spot, as small as may be, in the forms that models come in; and TRL's chat templates."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from hermes_tokens.tokenizer import ChatTokenizer

CORPUS = (
    "You help with the weather. What is the weather in Oslo, and the time? And in Malmö? It is 7 °C, clear, wind 3",
    'user system assistant tool output {"name": "weather", "arguments": {"place": "Oslo"}} function value',
    "the quick brown fox jumps over the lazy dog 0123456789 <tool_response> </tool_response> <think> </think> im_end",
)
CONTROL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<\|[a-z_]+>|<[a-z_]+\|>|<\|\"\|>|<｜[^<>｜]{1,40}｜>|<end_of_utterance>|<(?:start|end)_of_turn>"
    r"|</?(?:think|tool_call|tool_response|arg_key|arg_value|function|tools|s|image)>|\[/?(?:INST|gMASK)\]|<sop>"
)
# The stop tokens by the start of a template's name; the first is the tokenizer's own.
STOPS = {
    "cohere": ("<|END_OF_TURN_TOKEN|>",),
    "deepseek": ("<｜end▁of▁sentence｜>",),
    "diffusion_gemma": ("<turn|>", "<|tool_response>"),
    "gemma4": ("<turn|>", "<|tool_response>"),
    "gemma": ("<end_of_turn>",),
    "glm": ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "idefics": ("<end_of_utterance>",),
    "smolvlm": ("<end_of_utterance>",),
    "lfm2": ("<|im_end|>",),
    "llama3": ("<|eot_id|>",),
    "llava": ("</s>",),
    "muse": ("<|eot|>", "<|eom|>"),
    "nemotron": ("<|im_end|>",),
    "phi3": ("<|end|>", "<|endoftext|>"),
    "qwen": ("<|im_end|>", "<|endoftext|>"),
}


def trl_templates():
    """The chat templates in the installed `trl`, which is not imported: it would want torch."""
    found = importlib.util.find_spec("trl")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(next(iter(found.submodule_search_locations))) / "chat_templates"
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jinja"))}


def stops_of(name):
    return STOPS[max((prefix for prefix in STOPS if name.startswith(prefix)), key=len)]


def tokenizer_for(template, *, stops=("<|im_end|>", "<|endoftext|>"), kind="byte_level", more=(), **flags):
    """A tokenizer that has every control token of the template; `flags` are those of its added tokens."""
    from tokenizers import AddedToken, Tokenizer

    backend = Tokenizer.from_str(_train(kind))
    texts = dict.fromkeys((*stops, "<s>", "</s>", *sorted(CONTROL.findall(template)), *more))
    backend.add_special_tokens([AddedToken(text, **{"special": True, "normalized": False, **flags}) for text in texts])
    special = {"bos_token": "<s>", "eos_token": stops[0]}
    ids = [backend.token_to_id(text) for text in stops]
    return ChatTokenizer(backend, templates={"default": template}, stop_ids=ids, special_tokens=special)


def trl_tokenizer(name, kind="byte_level", **flags):
    return tokenizer_for(trl_templates()[name], stops=stops_of(name), kind=kind, **flags)


@functools.cache
def _train(kind):
    return globals()[f"_{kind}"]().to_str()


def _bpe(backend, **options):
    from tokenizers import trainers

    trainer = trainers.BpeTrainer(vocab_size=450, show_progress=False, **options)
    backend.train_from_iterator(CORPUS * 2, trainer)
    return backend


def _byte_level(*, add_prefix_space=False, normalizer=None):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE())
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    return _bpe(backend, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def _byte_level_with_prefix():
    return _byte_level(add_prefix_space=True)


def _byte_level_nfc():
    from tokenizers import normalizers

    return _byte_level(normalizer=normalizers.NFC())


def _metaspace(scheme):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return _bpe(backend, special_tokens=["<unk>", "<s>", "</s>"])


def _metaspace_first():
    return _metaspace("first")


def _metaspace_always():
    return _metaspace("always")


def _prepending():
    """Llama 2's form: a normalizer writes the spaces, and bytes replace unknown characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    backend.decoder = decoders.Sequence(parts)
    return _bpe(backend, special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])


def _unigram():
    """SentencePiece's form, with control tokens as ordinary pieces of the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    special = ["<unk>", "<s>", "</s>", "<|im_end|>"]
    trainer = trainers.UnigramTrainer(vocab_size=250, special_tokens=special, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(CORPUS * 4, trainer)
    return backend


def _word_level():
    """Whole words only, control tokens among them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>", "<|im_end|>", "<|im_start|>"], show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    return backend


KINDS = (
    "byte_level",
    "byte_level_nfc",
    "byte_level_with_prefix",
    "metaspace_first",
    "metaspace_always",
    "prepending",
    "unigram",
    "word_level",
)
