"""Find the parser of a model by its Hugging Face id or the name it is served under.

A row is a model line, split into words and numbers, and the words that may follow it. A name with any other word (a
fine-tune, an embedding model, a distillation) is not recognised: its template may have changed, and no parser is better
than a wrong one. The sources are the model cards, the published chat templates and the model lists of vLLM 0.33 and
SGLang 0.5; where these disagree about a model (Llama 4, DeepSeek-V3.2-Exp) there is no row.
"""

from __future__ import annotations

import re
from typing import Final

_LINES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "hermes": (
        ("hermes 2 pro", "llama mistral 3"),
        ("hermes 2 theta", "llama 3"),
        ("hermes 3", "llama 3.1 3.2"),
        ("hermes 4", ""),
        ("hermes 4.3", ""),
        ("deephermes 3", "llama mistral 3 preview"),
        ("qwen 2.5", "coder 1m"),
        ("qwq", ""),
        ("qwen 3", "thinking"),
        ("qwen 3 next", "thinking"),
        ("qwen 3 vl", "thinking"),
        ("smollm 3", ""),
        ("mellum 2", "thinking"),
    ),
    "ernie45": (("ernie 4.5 21b a3b thinking", ""),),
    "longcat": (("longcat flash chat", ""),),
    "mistral": (
        ("mistral 7b instruct v0.3", ""),
        ("mixtral 8x22b instruct v0.1", ""),
        ("mistral nemo", ""),
        ("mistral small", ""),
        ("mistral small 3.1", ""),
        ("mistral small 3.2", ""),
        ("mistral small 4", ""),
        ("mistral medium 3.5", ""),
        ("mistral large", ""),
        ("mistral large 3", ""),
        ("ministral 8b", ""),
        ("ministral 3", "reasoning"),
        ("magistral small", ""),
        ("magistral medium", ""),
        ("devstral small", ""),
        ("devstral small 2", ""),
        ("devstral medium", ""),
        ("devstral 2", ""),
        ("voxtral small 24b", ""),
        ("voxtral mini 3b", ""),
    ),
    "llama3_json": (
        ("llama 3.1", "turbo"),
        ("llama 3.2", "vision turbo"),
        ("llama 3.3", "turbo"),
        ("meta llama 3.1", "turbo"),
    ),
    "pythonic": (("toolace", ""),),
    "olmo3": (("olmo 3", "think"),),
    "qwen3_6": (("qwen 3.6", ""), ("qwen 3.8", "flash next")),
    "qwen3_coder": (
        ("qwen 3 coder", "next flash plus"),
        ("qwen 3.5", ""),
        ("nemotron 3", "nano super ultra omni reasoning"),
        ("nemotron 3.5", "lightning super vl"),
        ("nvidia nemotron 3", "nano super ultra"),
        ("nvidia nemotron 3.5", "lightning super vl"),
    ),
    "seed_oss": (("seed oss", ""),),
    "step3p5": (("step 3.5 flash", ""), ("step 3.7 flash", "")),
    "mimo": (
        ("mimo v2", "flash"),
        ("mimo v2.5", "pro"),
        ("mimo v2.6", "flash pro rl mopd"),
    ),
    "deepseek_v3": (("deepseek v3", ""), ("deepseek r1", "")),
    "deepseek_v31": (("deepseek v3.1", "terminus"),),
    "deepseek_v32": (("deepseek v3.2", ""),),
    "deepseek_v4": (("deepseek v4", "flash pro vision exp"),),
    "deepseek_v41": (("deepseek v4.1", "flash"),),
    "kimi_k2": (
        ("kimi k2", "thinking"),
        ("kimi k2.5", ""),
        ("kimi k2.6", ""),
        ("kimi k2.7", "code"),
    ),
    "kimi_k3": (("kimi k3", ""),),
    "glm45": (
        ("glm 4.5", "air"),
        ("glm 4.5v", ""),
        ("glm 4.6", ""),
        ("glm 4.6v", "flash"),
    ),
    "glm47": (
        ("glm 4.7", "flash"),
        ("glm 5", ""),
        ("glm 5.1", ""),
        ("glm 5.2", ""),
        ("glm 5.3", "flash"),
    ),
    "minimax_m2": (
        ("minimax m2", ""),
        ("minimax m2.1", ""),
        ("minimax m2.5", ""),
        ("minimax m2.7", ""),
    ),
    "minimax_m3": (("minimax m3", ""), ("minimax m3.1", "flash")),
    "granite": (
        ("granite 3.0", "a400m a800m"),
        ("granite 3.1", "a400m a800m"),
        ("granite 3.2", ""),
        ("granite 3.3", ""),
    ),
    "granite4": (
        ("granite 4.0", "h small tiny micro"),
        ("granite 4.1", "h small tiny micro"),
    ),
    "granite-20b-fc": (("granite 20b functioncalling", ""),),
    "internlm": (("internlm 2.5", ""),),
    "interns1": (("intern s1", ""),),
    "jamba": (
        ("ai 21 jamba 1.5", "mini large"),
        ("jamba 1.5", "mini large"),
        ("ai 21 jamba mini", "1.5 1.6 1.7"),
        ("ai 21 jamba large", "1.5 1.6 1.7"),
    ),
    "phi4_mini_json": (("phi 4 mini instruct", ""),),
    "xlam": (("xlam 2", "fc r"), ("llama xlam 2", "fc r")),
    "gpt-oss": (("gpt oss", ""),),
    "lfm2": (("lfm 2", "tool"), ("lfm 2.5", "thinking jp")),
    "hunyuan": (("hunyuan a13b", ""),),
    "gemma4": (("gemma 4", ""), ("diffusiongemma", "")),
    "functiongemma": (("functiongemma", ""),),
    "muse_glimmer": (("muse glimmer", ""),),
    "step3": (("step 3", ""),),
    "minicpm5": (("minicpm 5", ""),),
    "hy_v4": (("hy 4", "preview"),),
    "cohere_command3": (
        ("c4ai command a", "03"),
        ("command a", "03"),
        ("command a reasoning", "08"),
        ("c4ai command r7b", "12"),
        ("command r7b", "12"),
    ),
    "cohere_command4": (("command a plus", "05"), ("north mini code 1.0", "")),
    "apertus": (("apertus", ""),),
    "gigachat3": (("gigachat 3", "preview"), ("gigachat 3.1", "preview lightning ultra")),
    "gigachat35": (("gigachat 3.5", "preview ultra"),),
    "k2_horizon": (("k2 horizon", "mova"),),
    "inkling": (("inkling", "small"),),
    "plamo3": (("plamo 3.0 prime", "beta"),),
    "solar_open2": (("solar open 2", ""),),
}

_PARSER_OF: Final = {head: (parser, frozenset(tail.split())) for parser, rows in _LINES.items() for head, tail in rows}

_PACKING: Final = (
    "awq gptq gguf ggml bnb mlx exl2 exl3 hqq fp8 fp4 bf16 fp16 nvfp4 nvfp4a16 mxfp4 mxfp8 int4 int8 nf4 "
    "dynamic block quantized autoround qat ct unsloth ud imatrix marlin k m s l xs xl xxs of"
)
_HARMLESS: Final = frozenset(("instruct chat it hf latest free cloud " + _PACKING).split())
"""Words for packaging or instruction tuning; none of them changes the form of a call."""

_SIZE_OR_DATE: Final = re.compile(
    r"[ae]?\d+(\.\d+)?[bt]"  # 8b, a3b, e4b, 0.6b, 1t
    r"|\d+(\.\d+)?m|\d+x\d+b|\d+e"  # 350m, 8x22b, 16e
    r"|\d{4,5}"  # 2507, 0324, and the parts of a split file
    r"|\d+bit|w\d+a\d+|i?q\d|i\d|g\d+|\d+g"  # quantisations: 4bit, w4a16, q4, iq3, i1, g128
)
_VERSION_WITHOUT_DOT: Final = re.compile(r"(?<=\d)[_p](?=\d(?![0-9a-z]))")
_SEPARATOR: Final = re.compile(r"[^0-9a-z.]+|\.(?!\d)|(?<!\d)\.")
_WORD_AND_NUMBER: Final = re.compile(r"([a-z]{2,})(\d+(?:\.\d+)?v?)")


def parser_for(model_id: str) -> str | None:
    """Return the name of the parser for a model, or None if it is not certain or this package has none."""
    from hermes_parsers import list_parsers

    name = format_of(model_id)
    return name if name in list_parsers() else None


def format_of(model_id: str) -> str | None:
    """Return the name of the model's wire format, whether or not there is a parser for it."""
    words = _words(model_id)
    for count in range(len(words), 0, -1):
        found = _PARSER_OF.get(" ".join(words[:count]))
        if found is not None:
            parser, own_words = found
            return parser if all(word in own_words or _is_harmless(word) for word in words[count:]) else None
    return None


def _words(model_id: str) -> list[str]:
    """Split `Qwen/Qwen2.5-7B-Instruct-AWQ` into `qwen 2.5 7b instruct awq`; organisation and folders are dropped."""
    name = model_id.strip().rstrip("/").replace("\\", "/").rpartition("/")[2].rpartition("--")[2].lower()
    # If a name must not contain dots, 3.1 is written 3_1 or 3p1.
    name = _VERSION_WITHOUT_DOT.sub(".", name)
    words: list[str] = []
    for word in filter(None, _SEPARATOR.split(name)):
        joined = None if _is_harmless(word) else _WORD_AND_NUMBER.fullmatch(word)
        words.extend(joined.groups() if joined else (word,))
    return words


def _is_harmless(word: str) -> bool:
    return word in _HARMLESS or _SIZE_OR_DATE.fullmatch(word) is not None
