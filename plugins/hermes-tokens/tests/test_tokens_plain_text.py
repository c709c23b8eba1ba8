"""Untrusted text never becomes a control token, and is otherwise encoded as inside a whole rendering."""

from __future__ import annotations

import functools
import json

import pytest
from chatml_folder import TEMPLATE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tokenizers import KINDS, tokenizer_for

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</think>", "<s>", "</s>")
hostile = st.lists(
    st.one_of(
        st.sampled_from(CONTROLS),
        st.sampled_from(("<|im_", "end|>", "\n", " ", "\x00", "\ud800", "▁", "é", "🙂", "\u200b", "<unk>", "<0x0A>")),
        st.text(max_size=5),
    ),
    max_size=12,
).map("".join)
# The characters that the smaller vocabularies support, including white space at the edges.
harmless = st.text(alphabet="abcdefg OSLO.,:7\n", max_size=30)


@functools.cache
def new_tokenizer(kind):
    return tokenizer_for(TEMPLATE, kind=kind, more=CONTROLS)


@pytest.mark.parametrize("kind", KINDS)
@given(text=hostile)
@example(text="".join(CONTROLS))
@example(text=" ".join(CONTROLS))
@settings(max_examples=60, deadline=None)
def test_no_text_is_encoded_to_a_control_id(kind, text):
    tokenizer = new_tokenizer(kind)
    for where in ({}, {"at_start": True}, {"continued": True}):
        assert tokenizer.control_ids.isdisjoint(tokenizer.encode_plain(text, **where))


@given(text=hostile)
@settings(max_examples=100, deadline=None)
def test_what_is_encoded_reads_as_it_was(text):
    tokenizer = new_tokenizer("byte_level")
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.decode(tokenizer.encode_plain(text)) == valid


@pytest.mark.parametrize("kind", KINDS)
@given(text=harmless, before=harmless)
@settings(max_examples=60, deadline=None)
def test_a_piece_has_the_ids_it_has_inside_a_whole_text(kind, text, before):
    tokenizer = new_tokenizer(kind)
    start, end = (tokenizer.controls.by_text[name].id for name in ("<|im_start|>", "<|im_end|>"))
    whole = tokenizer.encode_scaffold(f"{before}<|im_start|>{text}<|im_end|>")
    pieces = [*tokenizer.encode_plain(before, at_start=True), start, *tokenizer.encode_plain(text), end]
    assert pieces == whole


def test_a_vocabulary_may_hold_a_control_token_as_an_ordinary_piece():
    """The reason why removing added tokens is not enough."""
    tokenizer = new_tokenizer("unigram")
    end = tokenizer.controls.by_text["</s>"].id
    data = json.loads(tokenizer._backend.to_str())
    assert data["model"]["vocab"][end][0] == "</s>"
    ids = tokenizer.encode_plain("Oslo</s>Oslo")
    assert end not in ids
    assert tokenizer.decode(ids) == "Oslo</s>Oslo" or "<unk>" in tokenizer.decode(ids)


def test_added_white_space_is_not_a_control_token():
    tokenizer = tokenizer_for(TEMPLATE, more=("   ", "\t\t", "▁▁"))
    added = {tokenizer.controls.by_text.get(text) for text in ("   ", "\t\t", "▁▁")}
    assert added == {None}
    assert tokenizer.encode_plain("a   b") == tokenizer.encode_scaffold("a   b")


def test_the_id_of_unknown_characters_is_text():
    tokenizer = new_tokenizer("word_level")
    assert tokenizer.encode_plain("zzzz") == tokenizer.encode_scaffold("zzzz")
    assert len(tokenizer.encode_plain("zzzz")) == 1


def test_a_long_control_text_is_cut_without_recursion_limits():
    tokenizer = new_tokenizer("unigram")
    ids = tokenizer.encode_plain("</s>" * 2_000)
    assert tokenizer.control_ids.isdisjoint(ids)
