"""Finding the parser of a model by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_parsers import list_parsers
from hermes_parsers.models import format_of, parser_for

PUBLISHED = {
    "hermes": [
        "NousResearch/Hermes-2-Pro-Llama-3-8B",
        "NousResearch/Hermes-2-Pro-Mistral-7B",
        "NousResearch/Hermes-2-Theta-Llama-3-8B",
        "NousResearch/Hermes-3-Llama-3.1-8B",
        "NousResearch/Hermes-3-Llama-3.1-70B-FP8",
        "NousResearch/Hermes-4-14B",
        "NousResearch/DeepHermes-3-Llama-3-8B-Preview",
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct-1M",
        "Qwen/Qwen2.5-Coder-32B-Instruct",
        "Qwen/QwQ-32B",
        "Qwen/QwQ-32B-AWQ",
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3-30B-A3B-Thinking-2507",
        "Qwen/Qwen3-235B-A22B-Instruct-2507",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3-VL-30B-A3B-Thinking",
        "HuggingFaceTB/SmolLM3-3B",
    ],
    "qwen3_6": ["Qwen/Qwen3.6-27B", "Qwen/Qwen3.8-Flash-30B-A3B"],
    "qwen3_coder": [
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
        "Qwen/Qwen3-Coder-Next",
        "Qwen/Qwen3.5-397B-A17B",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ],
    "mistral": [
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "mistralai/Mistral-Nemo-Instruct-2407",
        "mistralai/Mistral-Small-24B-Instruct-2501",
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        "mistralai/Mistral-Large-Instruct-2411",
        "mistralai/Ministral-3-14B-Reasoning-2512",
        "mistralai/Magistral-Small-2509",
        "mistralai/Devstral-Small-2507",
    ],
    "llama3_json": [
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
    ],
    "pythonic": ["Team-ACE/ToolACE-8B"],
    "olmo3": ["allenai/Olmo-3-7B-Instruct", "allenai/Olmo-3-32B-Think"],
    "deepseek_v3": ["deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-R1-0528"],
    "deepseek_v31": ["deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3.1-Terminus"],
    "deepseek_v32": ["deepseek-ai/DeepSeek-V3.2"],
    "deepseek_v4": ["deepseek-ai/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Pro-0813"],
    "kimi_k2": ["moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.5"],
    "kimi_k3": ["moonshotai/Kimi-K3"],
    "glm45": ["zai-org/GLM-4.5-Air", "zai-org/GLM-4.5V-FP8", "zai-org/GLM-4.6"],
    "glm47": ["zai-org/GLM-4.7-Flash", "zai-org/GLM-5", "zai-org/GLM-5.3-Flash"],
    "minimax_m2": ["MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1"],
    "minimax_m3": ["MiniMaxAI/MiniMax-M3"],
    "gpt-oss": ["openai/gpt-oss-20b", "openai/gpt-oss-120b", "lmsys/gpt-oss-20b-bf16"],
    "lfm2": ["LiquidAI/LFM2-1.2B", "LiquidAI/LFM2-8B-A1B", "LiquidAI/LFM2.5-1.2B-Instruct"],
    "granite": ["ibm-granite/granite-3.0-8b-instruct", "ibm-granite/granite-3.1-8b-instruct"],
    "granite4": ["ibm-granite/granite-4.0-h-small", "ibm-granite/granite-4.0-h-tiny"],
    "granite-20b-fc": ["ibm-granite/granite-20b-functioncalling"],
    "internlm": ["internlm/internlm2_5-7b-chat"],
    "interns1": ["internlm/Intern-S1-FP8"],
    "ernie45": ["baidu/ERNIE-4.5-21B-A3B-Thinking"],
    "jamba": ["ai21labs/AI21-Jamba-1.5-Mini", "ai21labs/AI21-Jamba-Mini-1.5", "ai21labs/AI21-Jamba-Large-1.7"],
    "phi4_mini_json": ["microsoft/Phi-4-mini-instruct"],
    "muse_glimmer": ["meta-models/Muse-Glimmer-30B", "unsloth/Muse-Glimmer-30B-GGUF"],
    "step3": ["stepfun-ai/step3", "stepfun-ai/step3-fp8"],
    "minicpm5": ["openbmb/MiniCPM5-1B", "openbmb/MiniCPM5-2B"],
    "hy_v4": ["tencent/Hy4-preview"],
    "cohere_command3": ["CohereLabs/c4ai-command-a-03-2025", "CohereLabs/c4ai-command-r7b-12-2024"],
    "cohere_command4": ["CohereLabs/command-a-plus-05-2026-bf16", "CohereLabs/North-Mini-Code-1.0"],
    "apertus": ["swiss-ai/Apertus-8B-Instruct-2509", "swiss-ai/Apertus-70B-Instruct-2509"],
    "gigachat3": ["ai-sage/GigaChat3-10B-A1.8B-bf16", "ai-sage/GigaChat3-702B-A36B-preview"],
    "gigachat35": ["ai-sage/GigaChat3.5-432B-A28B"],
    "k2_horizon": ["IFM/K2-Horizon-375B-A23B", "IFM/K2-Horizon-0.9B"],
    "inkling": ["thinkingmachines/Inkling", "thinkingmachines/Inkling-Small", "thinkingmachines/Inkling-NVFP4"],
    "plamo3": ["plamo-3.0-prime-beta"],
    "solar_open2": ["upstage/Solar-Open2-250B"],
    "xlam": ["Salesforce/Llama-xLAM-2-8b-fc-r", "Salesforce/xLAM-2-32b-fc-r"],
    "hunyuan": ["tencent/Hunyuan-A13B-Instruct"],
    "gemma4": ["google/gemma-4-31B-it", "google/gemma-4-E4B-it"],
    "functiongemma": ["google/functiongemma-270m-it"],
    "seed_oss": ["ByteDance-Seed/Seed-OSS-36B-Instruct"],
    "step3p5": ["stepfun-ai/Step-3.5-Flash", "stepfun-ai/Step-3.7-Flash-FP8"],
    "mimo": ["XiaomiMiMo/MiMo-V2-Flash", "XiaomiMiMo/MiMo-V2.6-Pro-RL"],
    "longcat": ["meituan-longcat/LongCat-Flash-Chat-FP8"],
}
MODELS = [(model, parser) for parser, models in PUBLISHED.items() for model in models]

UNCERTAIN = [
    # Models without tools, or without tools in their templates.
    "mistralai/Mistral-7B-Instruct-v0.1",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "meta-llama/Meta-Llama-3-8B-Instruct",
    "google/gemma-3-4b-it",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "deepseek-ai/DeepSeek-V3.2-Speciale",
    "microsoft/Phi-4-mini-reasoning",
    # Another kind of model on the same base.
    "Qwen/Qwen3-Embedding-8B",
    "Qwen/Qwen3-VL-Reranker-2B",
    "meta-llama/Llama-Guard-3-8B",
    "ibm-granite/granite-vision-3.3-2b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "RedHatAI/Qwen3-32B-speculator.eagle3",
    "google/gemma-4-31B-it-assistant",
    # A fine-tune may have a different template.
    "acme/Qwen3-8B-agent-sft",
    "cognitivecomputations/Dolphin3.0-Llama3.1-8B",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    # vLLM and SGLang disagree about them.
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "deepseek-ai/DeepSeek-V3.2-Exp",
    # Ambiguous names.
    "deepseek-chat",
    "default",
    "gpt-4o",
    "checkpoint-300",
    "",
    "/",
]


@pytest.mark.parametrize(("model", "wanted"), MODELS)
def test_published_models_are_known_by_their_hugging_face_ids(model, wanted):
    assert format_of(model) == wanted


@pytest.mark.parametrize(("model", "wanted"), MODELS)
def test_a_parser_is_named_only_if_it_is_at_hand(model, wanted):
    assert parser_for(model) == (wanted if wanted in list_parsers() else None)


@pytest.mark.parametrize("model", UNCERTAIN)
def test_no_parser_is_guessed_for_a_model_that_is_not_known_for_certain(model):
    assert format_of(model) is None
    assert parser_for(model) is None


@pytest.mark.parametrize(("model", "wanted"), MODELS)
def test_a_served_name_needs_no_organisation_and_no_capitals(model, wanted):
    name = model.rpartition("/")[2]
    assert format_of(name) == format_of(name.lower()) == format_of(name.upper()) == wanted


@given(
    st.sampled_from(MODELS),
    st.sampled_from(["-AWQ", "-FP8", "-GPTQ-Int4", "-GGUF", "-NVFP4", "-quantized.w8a8", ".i1-Q4_K_M.gguf"]),
)
def test_how_a_model_was_packed_does_not_matter(model, suffix):
    name, wanted = model
    assert format_of(name + suffix) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("qwen3:8b", "hermes"),
        ("qwen2.5:7b-instruct-q4_K_M", "hermes"),
        ("llama3.1:8b", "llama3_json"),
        ("accounts/fireworks/models/deepseek-v3p1", "deepseek_v31"),
        ("openrouter/qwen/qwen3-coder:free", "qwen3_coder"),
        ("models--Qwen--Qwen3-8B", "hermes"),
        ("/data/models/Qwen3-Coder-30B-A3B-Instruct/", "qwen3_coder"),
        ("C:\\models\\GLM-4.6", "glm45"),
        ("glm-4p5-air", "glm45"),
        ("mimo_v2_flash", "mimo"),
        ("qwen3_8b", "hermes"),
        ("llama_3_1_8b_instruct", "llama3_json"),
        ("deepseek_v3_0324", "deepseek_v3"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama3_json"),
        ("Llama-3.3-70B-Instruct-Q4_K_M-00001-of-00002.gguf", "llama3_json"),
    ],
)
def test_names_in_the_manner_of_servers_and_folders_are_read(name, wanted):
    assert format_of(name) == wanted


@given(st.text(max_size=60))
def test_any_text_is_answered(text):
    assert format_of(text) is None or isinstance(format_of(text), str)


@given(st.sampled_from(MODELS), st.from_regex(r"[a-z]{5,12}", fullmatch=True))
def test_a_word_that_is_not_known_leaves_the_model_unknown_or_as_it_was(model, word):
    name, wanted = model
    assert format_of(f"{name}-{word}") in {None, wanted}
