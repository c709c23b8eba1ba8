"""Chat templates that support tool messages and list no tools, each with the parser of its family."""

from __future__ import annotations

from small_tokenizers import trl_templates, trl_tokenizer

from hermes_core.contracts.parsing import DeclaringParser
from hermes_parsers import get_parser

PLAIN = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""The form of ChatML templates from before there were tools: what a turn calls, it leaves out."""
FAMILIES = {
    name: parser
    for name, parser in {
        "deepseekv3": "deepseek_v3",
        "deepseek_r1_distill": "deepseek_v3",
        "qwen2_5_vl": "hermes",
        "llama3": "llama3_json",
        "smolvlm": "hermes",
        "idefics3": "hermes",
    }.items()
    if name in trl_templates()
}
"""TRL's templates of this kind; empty if TRL is not installed."""
MARKS = {
    "deepseek_v3": tuple(
        f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
    ),
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama3_json": ("<|python_tag|>",),
}
"""The marks of calls that are control tokens."""
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


def tool(name="weather", description="Tells it."):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": PLACE}}


TOOLS = (tool(),)


def family_tokenizer(name, **options):
    return trl_tokenizer(name, more=MARKS[FAMILIES[name]], **options)


def declaring_parser(name) -> DeclaringParser:
    parser = get_parser(name)
    assert isinstance(parser, DeclaringParser)
    return parser
