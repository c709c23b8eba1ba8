"""Train a byte-level BPE on the task's texts, and write it as a Hugging Face folder with a chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY: Final = 448
PADDING: Final = "<|endoftext|>"
OPEN: Final = "<|im_start|>"
CLOSE: Final = "<|im_end|>"
# Added, but not special: a parser must find them in the decoded text, as with the models this format comes from.
TAGS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

TEMPLATE: Final = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}
{{- 'tools:' }}{%- for tool in tools %}{{- ' ' + (tool.function or tool).name }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
{%- set function = call.function or call %}
{{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
{{- function.arguments if function.arguments is string else function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>tool\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def train(texts: Iterable[str], words: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts.

    Digits, newlines and the given words stay separate tokens; any text between them may become one token. Boilerplate
    such as the head of a tool call is then a token or two, while every choice of the model is a separate token.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    apart = Regex("|".join([r"\n", r"\d", *words]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(apart, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, special=True, normalized=False) for text in (PADDING, OPEN, CLOSE)]
    added += [AddedToken(text, special=False, normalized=False) for text in TAGS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The trainer does not recognise control tokens in a text: it would learn their spelling.
    tokenizer.train_from_iterator((part for text in texts for part in _between(text)), trainer)
    tokenizer.add_tokens(added[3:])
    return tokenizer


def _between(text: str) -> list[str]:
    return re.split("|".join(map(re.escape, (PADDING, OPEN, CLOSE, *TAGS))), text)


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the files of a model's folder except the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "eos_token": CLOSE,
        "pad_token": PADDING,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    ids = {"eos_token_id": [tokenizer.token_to_id(CLOSE)], "pad_token_id": tokenizer.token_to_id(PADDING)}
    _write(folder / "tokenizer_config.json", settings)
    _write(folder / "generation_config.json", ids)


def load(folder: Path) -> Tokenizer:
    """Read the tokenizer that `save` wrote."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def stop_ids(folder: Path) -> tuple[int, ...]:
    """Return the ids that end a turn, as the folder names them."""
    named = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return tuple(named) if isinstance(named, list) else (named,)


def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Write a conversation as the chat template does."""
    import jinja2

    # Every reader of such a template sets trim_blocks and lstrip_blocks.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - prompts are not HTML
    return environment.from_string(TEMPLATE).render(messages=messages, tools=tools)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
