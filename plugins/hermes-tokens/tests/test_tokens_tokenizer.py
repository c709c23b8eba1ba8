"""A tokenizer's folder, and what is read from it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from chatml_folder import TEMPLATE, chatml_folder

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.tokenizer import ChatTokenizer


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def folder(tokenizer_folder, tmp_path):
    for file in tokenizer_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def write(folder, name, **values):
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


def names(tokenizer, ids):
    return {tokenizer.controls.by_id[number].text for number in ids}


def test_a_folder_gives_template_stop_tokens_and_control_tokens(tokenizer_folder):
    tokenizer = ChatTokenizer.load(tokenizer_folder)
    assert tokenizer.chat_template == TEMPLATE
    assert names(tokenizer, tokenizer.stop_ids) == {"<|im_end|>", "<|endoftext|>"}
    assert names(tokenizer, tokenizer.control_ids) >= {"<|im_start|>", "<|im_end|>", "<think>", "<tool_call>"}


@pytest.mark.parametrize(
    ("eos", "generation", "expected"),
    [
        ("<|im_end|>", {}, {"<|im_end|>"}),
        ({"content": "<|im_end|>", "lstrip": False}, {}, {"<|im_end|>"}),
        (None, {"eos_token_id": 0}, None),
        (None, {}, set()),
    ],
)
def test_stop_tokens_come_from_either_file(folder, eos, generation, expected):
    write(folder, "tokenizer_config.json", eos_token=eos)
    write(folder, "generation_config.json", **generation)
    stops = ChatTokenizer.load(folder).stop_ids
    tokenizer = ChatTokenizer.load(folder)
    assert stops == {0} if expected is None else names(tokenizer, stops) == expected


def test_the_template_file_wins_over_the_config(folder):
    write(folder, "tokenizer_config.json", chat_template="from the config")
    assert ChatTokenizer.load(folder).chat_template == TEMPLATE
    (folder / "chat_template.jinja").unlink()
    assert ChatTokenizer.load(folder).chat_template == "from the config"


def test_of_named_templates_the_one_for_tools_is_taken_when_there_are_tools(folder):
    (folder / "chat_template.jinja").unlink()
    listed = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    write(folder, "tokenizer_config.json", chat_template=listed)
    tokenizer = ChatTokenizer.load(folder)
    assert [tokenizer.template_for(()), tokenizer.template_for([{}])] == ["plain", "with tools"]


def test_a_template_in_a_file_of_its_own_name_is_found(folder):
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("with tools", encoding="utf-8")
    assert ChatTokenizer.load(folder).template_for([{}]) == "with tools"


def test_without_a_template_the_error_says_where_to_put_one(folder):
    (folder / "chat_template.jinja").unlink()
    tokenizer = ChatTokenizer.load(folder)
    assert tokenizer.chat_template is None
    with pytest.raises(ConfigError, match=r"got one without\n  → add chat_template.jinja"):
        tokenizer.template_for(())


def test_named_templates_without_a_default_are_listed(folder):
    (folder / "chat_template.jinja").unlink()
    write(folder, "tokenizer_config.json", chat_template=[{"name": "rag", "template": "x"}])
    with pytest.raises(ConfigError, match="named default, got rag"):
        ChatTokenizer.load(folder).template_for(())


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"tokenizer\.json, got .* without one\n  → --tokenizer DIR"):
        ChatTokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe"])
def test_a_broken_file_is_named(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        ChatTokenizer.load(folder)


def test_tokens_that_only_the_config_knows_are_added(folder):
    size = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][-1]["id"] + 1
    entry = {"content": "<|more|>", "special": True, "normalized": False}
    write(folder, "tokenizer_config.json", added_tokens_decoder={str(size): entry})
    tokenizer = ChatTokenizer.load(folder)
    assert tokenizer.encode_scaffold("<|more|>") == [size]
    assert size in tokenizer.control_ids


def test_files_that_disagree_on_an_id_are_refused(folder):
    write(folder, "tokenizer_config.json", added_tokens_decoder={"7": {"content": "<|more|>"}})
    with pytest.raises(ConfigError, match=r"'<\|more\|>' to have id 7"):
        ChatTokenizer.load(folder)


def test_truncation_and_padding_of_the_folder_are_switched_off(folder):
    data = json.loads((folder / "tokenizer.json").read_text())
    data["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    write(folder, "tokenizer.json", **data)
    tokenizer = ChatTokenizer.load(folder)
    text = "the quick brown fox jumps over the lazy dog"
    assert tokenizer.decode(tokenizer.encode_scaffold(text)) == text
    assert tokenizer.decode(tokenizer.encode_plain(text)) == text


def test_control_tokens_and_broken_characters_are_decoded(tokenizer_folder):
    tokenizer = ChatTokenizer.load(tokenizer_folder)
    ids = [*tokenizer.encode_scaffold("<|im_start|>"), *tokenizer.encode_plain("é")[:1]]
    assert tokenizer.decode(ids) == "<|im_start|>\ufffd"


def test_a_tokenizer_of_transformers_is_taken_over(tokenizer_folder):
    loaded = ChatTokenizer.load(tokenizer_folder)
    stops = sorted(loaded.stop_ids)
    fast = SimpleNamespace(
        backend_tokenizer=loaded._backend,
        chat_template=TEMPLATE,
        eos_token_id=stops[0],
        special_tokens_map={"eos_token": "<|im_end|>", "additional_special_tokens": ["<think>"]},
    )
    tokenizer = ChatTokenizer.of(fast)
    assert tokenizer.stop_ids == {stops[0]}
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.special_tokens["additional_special_tokens"] == ["<think>"]
    assert tokenizer.encode_scaffold("<|im_end|>x") == loaded.encode_scaffold("<|im_end|>x")


def test_a_slow_tokenizer_is_refused_with_the_way_to_a_fast_one():
    with pytest.raises(ConfigError, match=r"got SimpleNamespace without backend_tokenizer\n  → .*use_fast"):
        ChatTokenizer.of(SimpleNamespace(chat_template=None))


def test_the_fingerprint_changes_with_the_template_and_the_tokenizer_only(folder):
    first = ChatTokenizer.load(folder).fingerprint
    assert ChatTokenizer.load(folder).fingerprint == first
    (folder / "chat_template.jinja").write_text("another", encoding="utf-8")
    assert ChatTokenizer.load(folder).fingerprint != first
