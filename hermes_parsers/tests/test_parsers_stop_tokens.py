"""Every parser names the special tokens that end a turn of its models, as in their chat templates and generation
configs.
"""

from __future__ import annotations

import pytest

from hermes_core.contracts.parsing import StoppingParser
from hermes_parsers import from_response_template, get_parser
from hermes_parsers.catalog import FAMILIES

SENTENCE_END = "<\uff5cend▁of▁sentence\uff5c>"
STOPS = {
    "hermes": {"<|im_end|>", "<|end_of_text|>"},
    "longcat": {"</longcat_s>"},
    "jamba": {"<|eom|>"},
    "hunyuan": {"<|eos|>"},
    "granite": {"<|end_of_text|>"},
    "granite-20b-fc": {"<|endoftext|>"},
    "phi4_mini_json": {"<|end|>"},
    "xlam": {"<|eot_id|>", "<|im_end|>"},
    "llama3_json": {"<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>"},
    "internlm": {"<|im_end|>"},
    "interns1": {"<|im_end|>"},
    "mistral": {"</s>"},
    "deepseek_v3": {SENTENCE_END},
    "deepseek_v31": {SENTENCE_END},
    "kimi_k2": {"<|im_end|>"},
    "gpt-oss": {"<|return|>", "<|call|>"},
    "dots": {"<|endofresponse|>"},
    "pythonic": {"<|eot_id|>", "<|eom_id|>"},
    "llama4_pythonic": {"<|eot|>", "<|eom|>"},
    "lfm2": {"<|im_end|>"},
    "olmo3": {"<|im_end|>"},
    "gemma4": {"<turn|>", "<|tool_response>"},
    "functiongemma": {"<end_of_turn>", "<start_function_response>"},
    "qwen3_coder": {"<|im_end|>"},
    "qwen3_6": {"<|im_end|>"},
    "mimo": {"<|im_end|>"},
    "seed_oss": {"<seed:eos>"},
    "glm45": {"<|user|>", "<|observation|>", "<|endoftext|>"},
    "glm47": {"<|user|>", "<|observation|>", "<|endoftext|>"},
    "hy_v3": {"<\uff5chy_eos\uff5c>", "<\uff5chy_eos:opensource\uff5c>"},
    "minimax_m2": {"[e~["},
    "minimax_m3": {"[e~["},
    "muse": {"<|eot|>"},
    "deepseek_v32": {SENTENCE_END},
    "deepseek_v4": {SENTENCE_END},
    "deepseek_v41": {SENTENCE_END},
    "step3": {"<|EOT|>"},
    "kimi_k3": {"<|end_of_msg|>"},
    "cohere_command3": {"<|END_OF_TURN_TOKEN|>"},
    "cohere_command4": {"<|END_OF_TURN_TOKEN|>"},
    "apertus": {"<|assistant_end|>", "<|tools_suffix|>"},
    "inkling": {"<|content_model_end_sampling|>"},
}
UNKNOWN = {
    "ernie45",
    "step5",
    "hy_v4",
    "minicpm5",
    "gigachat3",
    "gigachat35",
    "k2_horizon",
    "plamo3",
    "solar_open2",
}
"""No published template of these is clear; a token that the model does not have would be worse than none."""
NAMES = [family.names[0] for family in FAMILIES if family.names[0] != "response_template"]


def stops_of(parser):
    assert isinstance(parser, StoppingParser)
    return tuple(parser.stop_tokens)


@pytest.mark.parametrize("name", NAMES)
def test_every_family_names_its_stop_tokens(name):
    assert set(stops_of(get_parser(name))) == STOPS.get(name, set())
    assert name in STOPS or name in UNKNOWN


@pytest.mark.parametrize("name", NAMES)
def test_a_stop_token_stands_nowhere_but_at_the_end_of_a_turn(name):
    parser = get_parser(name)
    call = {"id": "call00000", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    message = {"role": "assistant", "content": "Some text.", "tool_calls": [call]}
    for changes in ({}, {"content": None}, {"tool_calls": []}, {"reasoning_content": "hm"}):
        try:
            text = parser.render({**message, **changes})
        except ValueError:  # some formats have no reasoning, or no text next to a call
            continue
        for token in stops_of(parser):
            assert text.find(token) in {-1, len(text) - len(token)}, f"{token} stands in {text!a}"


def test_a_response_template_has_those_of_its_tokenizer():
    template = {
        "eos_token": {"content": "<|end|>"},
        "response_template": {"start_anchor": "<|model|>", "fields": {"content": {}}},
    }
    assert stops_of(from_response_template(template)) == ("<|end|>",)
    assert stops_of(from_response_template(template["response_template"])) == ()


def test_each_is_listed_once_and_is_no_plain_word():
    for name in NAMES:
        tokens = stops_of(get_parser(name))
        assert len(tokens) == len(set(tokens))
        assert all(token.startswith(("<", "[")) for token in tokens)
