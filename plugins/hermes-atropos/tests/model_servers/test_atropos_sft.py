"""Masks for supervised learning: a loss on what the model wrote, none on reasoning that only the template wrote."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from chatml_folder import chatml_folder

from hermes_atropos.compat import load_tokenizer
from hermes_atropos.model_servers.sft import assistant_only
from hermes_core.contracts.tokens import IGNORED

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Oslo"}'}}
ASKED: dict[str, Any] = {"role": "user", "content": "the weather?"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [ASKED, {"role": "assistant", "content": "It is 7"}],
    "tool": [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "7 C"},
        {"role": "assistant", "content": "It is 7"},
    ],
    "two": [ASKED, {"role": "assistant", "content": "It is 7"}, ASKED, {"role": "assistant", "content": "clear"}],
}
WITH_SPACE = [" It is 7", "    return 7", "\tx = 1", "\n\nIt is 7", " \n It is 7", "\u00a0It is 7"]
BLOCKS = {
    "lines": ("<think>\n", "\n</think>\n\n"),
    "bare": ("<think>", "</think>"),
    "closing_alone": ("", "</think>"),
    "namespace": ("<seed:think>", "</seed:think>"),
    "long_name": ("<thinking>\n", "\n</thinking>\n"),
    "brackets": ("[THINK]", "[/THINK]"),
    "command": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "piped": ("<|think|>", "<|/think|>"),
    "channel": ("<|channel>thought\n", "<channel|>"),
}
TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|im_start|>assistant
OPENING{{ message.reasoning_content or '' }}CLOSING{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif %}"""


@pytest.fixture(scope="module")
def with_template(tmp_path_factory):
    tokenizer = load_tokenizer(str(chatml_folder(tmp_path_factory.mktemp("tokenizer"))))

    def using(template):
        tokenizer.chat_template = template
        return tokenizer

    return using


def blocks_template(name, *, is_opened):
    opening, closing = (part.replace("\n", "{{ '\\n' }}") for part in BLOCKS[name])
    filled = TEMPLATE.replace("OPENING", opening).replace("CLOSING", closing)
    return filled.replace("PROMPT", opening if is_opened else "")


def texts_with_loss(tokenizer, messages):
    """Return the texts that have a loss, and check that the tokens are those of the template."""
    tokens, masks = assistant_only(tokenizer, messages)
    filled = [{**message, "content": message["content"] or ""} for message in messages]
    for message in filled:
        if "tool_calls" in message:
            function = {**CALL["function"], "arguments": {"place": "Oslo"}}
            message["tool_calls"] = [{**CALL, "function": function}]
    text = tokenizer.apply_chat_template(filled, tokenize=False)
    assert tokens == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert all(mask in {token, IGNORED} for token, mask in zip(tokens, masks, strict=True))
    pairs = zip(tokens, masks, strict=True)
    runs = itertools.groupby(pairs, key=lambda pair: pair[1] != IGNORED)
    return [tokenizer.decode([token for token, _ in run]) for has_loss, run in runs if has_loss]


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_an_empty_block_that_the_template_wrote_has_no_loss(block, conversation, is_opened, with_template):
    texts = texts_with_loss(with_template(blocks_template(block, is_opened=is_opened)), CONVERSATIONS[conversation])
    written = [message for message in CONVERSATIONS[conversation] if message["role"] == "assistant"]
    expected = [message["content"] or "<tool_call>" for message in written]
    assert len(texts) == len(expected)
    assert all(text.startswith(begin) for text, begin in zip(texts, expected, strict=True)), texts
    assert all(text.endswith("<|im_end|>") for text in texts)


@pytest.mark.parametrize("content", ["<" + "think" * 40_000, "</" + "think" * 40_000, "<" * 50_000 + "/think"])
def test_a_content_that_begins_like_a_mark_without_end_is_read_in_one_pass(content, with_template):
    tokenizer = with_template(blocks_template("bare", is_opened=False))
    tokens, masks = assistant_only(tokenizer, [ASKED, {"role": "assistant", "content": content}])
    assert len(tokens) == len(masks) > 1000


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_reasoning_that_the_data_has_is_trained_with_its_marks(block, is_opened, with_template):
    thinking = {"role": "assistant", "content": "It is 7", "reasoning_content": "let me see"}
    without = {"role": "assistant", "content": "clear"}
    tokenizer = with_template(blocks_template(block, is_opened=is_opened))
    opening, closing = BLOCKS[block]
    first, second = texts_with_loss(tokenizer, [ASKED, thinking, ASKED, without])
    assert first == f"{'' if is_opened else opening}let me see{closing}It is 7<|im_end|>"
    assert second == "clear<|im_end|>"


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("content", WITH_SPACE)
def test_white_space_that_the_model_wrote_at_the_beginning_is_trained(block, content, is_opened, with_template):
    template = blocks_template(block, is_opened=is_opened)
    for message in ({}, {"tool_calls": [CALL]}):
        (text,) = texts_with_loss(
            with_template(template), [ASKED, {"role": "assistant", "content": content, **message}]
        )
        assert text.startswith(content)
        assert text.endswith("<|im_end|>")


@pytest.mark.parametrize("content", WITH_SPACE)
@pytest.mark.parametrize("method", ["lstrip('\\n')", "rstrip()", "strip('\\n')", "strip()"])
def test_of_white_space_that_a_template_changes_what_is_left_is_trained(content, method, with_template):
    template = blocks_template("lines", is_opened=False).replace(
        "message.content }}", f"message.content.{method} }}}}", 1
    )
    (text,) = texts_with_loss(with_template(template), [ASKED, {"role": "assistant", "content": content + " \n"}])
    left = {"strip()": content.strip(), "rstrip()": content}.get(method, content.lstrip("\n"))
    assert text.lstrip("\n").startswith(left.lstrip("\n"))
    if not content.startswith("\n"):
        assert text.startswith(left)


@pytest.mark.parametrize("block", [name for name in BLOCKS if name != "closing_alone"])
def test_an_empty_block_that_the_model_wrote_is_trained(block, with_template):
    """Templates such as Qwen3's take the marks out of the content and write them anew."""
    template = TEMPLATE.replace("OPENING{{ message.reasoning_content or '' }}CLOSING", "").replace("PROMPT", "")
    content = f"{''.join(BLOCKS[block])}It is 7"
    assert texts_with_loss(with_template(template), [ASKED, {"role": "assistant", "content": content}]) == [
        f"{content}<|im_end|>"
    ]


@functools.cache
def trl_templates():
    """Return the chat templates in the installed `trl`, which is not imported: it would want torch."""
    found = importlib.util.find_spec("trl")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(next(iter(found.submodule_search_locations))) / "chat_templates"
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jinja"))}


THINKING = [name for name in trl_templates() if name.startswith(("qwen3", "glm4", "lfm2_2_5", "gemma4", "gptoss"))]


@pytest.mark.skipif(not THINKING, reason="the distribution trl is not installed")
@pytest.mark.parametrize("name", THINKING)
def test_templates_that_trl_carries_train_no_empty_reasoning(name, with_template):
    (text,) = texts_with_loss(with_template(trl_templates()[name]), CONVERSATIONS["plain"])
    assert "think" not in text
    assert text.removeprefix("<|channel|>final<|message|>").startswith("It is 7")


@pytest.mark.skipif(not THINKING, reason="the distribution trl is not installed")
@pytest.mark.parametrize("name", ["qwen3", "qwen3_6", "glm4moe", "gptoss", "gemma4_v5"])
def test_templates_that_trl_carries_train_reasoning_that_is_there(name, with_template):
    thinking = {"role": "assistant", "content": "It is 7", "reasoning_content": "let me see", "thinking": "let me see"}
    (text,) = texts_with_loss(with_template(trl_templates()[name]), [ASKED, thinking])
    assert "let me see" in text
