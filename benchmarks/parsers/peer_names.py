"""The names of each family in vLLM 0.33 and SGLang 0.5.23, and the special tokens of its models' vocabularies.

The names are those of the peers' documentation for the family's models; a reasoning parser is used only for texts with
reasoning. vLLM reads gpt-oss from the token ids of o200k_harmony, whose vocabulary is a download: it is not measured.
Mistral's rows differ in the tokenizer, by which vLLM chooses the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# DeepSeek's marks have a fullwidth bar, which looks like another character and is therefore written by its number.
BAR: Final = "\uff5c"
_DEEPSEEK: Final = tuple(
    f"<{BAR}tool▁{name}{BAR}>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
)
_THINK: Final = ("<think>", "</think>")
_TOOL_CALL: Final = ("<tool_call>", "</tool_call>")
_KIMI: Final = tuple(
    f"<|tool_{name}|>"
    for name in ("calls_section_begin", "calls_section_end", "call_begin", "call_end", "call_argument_begin")
)
_GLM: Final = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_HARMONY: Final = tuple(f"<|{name}|>" for name in ("start", "channel", "constrain", "message", "end", "call", "return"))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a family in each peer (None: not offered) and the special tokens of its models."""

    vllm: str | None = None
    sglang: str | None = None
    tokens: tuple[str, ...] = ()
    vllm_reasoning: str | None = None
    sglang_reasoning: str | None = None
    unmeasured: tuple[str, str] = ("", "")
    """A peer that has the family and cannot be asked here, and why."""
    channels: bool = False
    """Whether the reasoning parser is needed to read any text of the family."""


FAMILIES: Final[dict[str, Names]] = {
    "hermes": Names("hermes", "hermes", (*_TOOL_CALL, *_THINK), "qwen3", "qwen3"),
    "qwen25": Names("hermes", "qwen25", (*_TOOL_CALL, *_THINK), "qwen3", "qwen3"),
    "mistral": Names("mistral", "mistral", ("[TOOL_CALLS]",)),
    "mistral_args": Names(
        "mistral", "mistral", ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"), "mistral", "mistral"
    ),
    "llama3_json": Names("llama3_json", "llama3", ("<|python_tag|>",)),
    "pythonic": Names("pythonic", "pythonic"),
    "qwen3_coder": Names("qwen3_coder", "qwen3_coder", (*_TOOL_CALL, *_THINK), "qwen3", "qwen3"),
    "deepseek_v3": Names("deepseek_v3", "deepseekv3", (*_DEEPSEEK, *_THINK), "deepseek_r1", "deepseek-r1"),
    "deepseek_v31": Names("deepseek_v31", "deepseekv31", (*_DEEPSEEK, *_THINK), "deepseek_v3", "deepseek-v3"),
    "deepseek_v32": Names("deepseek_v32", "deepseekv32", (f"{BAR}DSML{BAR}", *_THINK), "deepseek_v3", "deepseek-v3"),
    "kimi_k2": Names("kimi_k2", "kimi_k2", (*_KIMI, *_THINK), "kimi_k2", "kimi_k2"),
    "glm45": Names("glm45", "glm45", (*_TOOL_CALL, *_GLM, *_THINK), "glm45", "glm45"),
    "minimax_m2": Names(
        "minimax_m2", "minimax-m2", ("<minimax:tool_call>", "</minimax:tool_call>", *_THINK), "minimax_m2", "minimax"
    ),
    "granite": Names("granite", None, ("<|tool_call|>",)),
    "internlm": Names("internlm", None, ("<|action_start|>", "<|plugin|>", "<|action_end|>")),
    "interns1": Names(None, "interns1", ("<|action_start|>", "<|plugin|>", "<|action_end|>")),
    "jamba": Names("jamba", None, ("<tool_calls>", "</tool_calls>")),
    "phi4_mini_json": Names("phi4_mini_json", None),
    "xlam": Names("xlam", None),
    "gpt-oss": Names(
        None,
        "gpt-oss",
        _HARMONY,
        sglang_reasoning="gpt-oss",
        unmeasured=("vllm", "it reads token ids of a vocabulary that has to be downloaded"),
        channels=True,
    ),
    "lfm2": Names("lfm2", "lfm2", ("<|tool_call_start|>", "<|tool_call_end|>")),
    "hunyuan": Names("hunyuan_a13b", None, _THINK, "hunyuan_a13b"),
    "gemma4": Names(
        "gemma4", "gemma4", ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"), "gemma4", "gemma4"
    ),
}
