"""Which package has a component that is not installed."""

from __future__ import annotations

from typing import Final

_PARSERS: Final = (
    "hermes qwen qwen25 qwen3_json qwen3 trinity ernie45 granite4 longcat jamba hunyuan hunyuan_a13b granite "
    "granite-20b-fc phi4_mini_json phi4 xlam llama3_json llama3 llama4_json llama4 internlm interns1 mistral "
    "deepseek_v3 deepseekv3 deepseek_v31 deepseek_v3_1 deepseekv31 kimi_k2 kimi gpt-oss openai gpt_oss dots "
    "pythonic llama4_pythonic lfm2 olmo3 gemma4 functiongemma qwen3_coder qwen3_xml qwen3_6 qwen3_8 step3p5 step5 mimo "
    "seed_oss glm45 glm glm47 ling3 poolside_v1 hy_v3 hy_v4 minimax_m2 minimax-m2 minimax_m3 minimax-m3 muse "
    "muse_glimmer musespark1x minicpm5 deepseek_v32 deepseekv32 deepseek_dsml deepseek_v4 deepseekv4 deepseek_v41 "
    "deepseekv41 step3 kimi_k3 cohere_command3 cohere_command4 apertus apertus2509 gigachat3 gigachat35 k2_horizon "
    "inkling nanbeige plamo3 solar_open2 response_template hf"
)
_VERIFIERS: Final = (
    "exit_code file_content pytest script exact_match regex_match numeric_match json_schema weighted gated"
)
_TOOLSETS: Final = (
    "terminal file todo web search vision image_gen browser moa skills memory session_search code_execution delegation "
    "clarify tts cronjob rl debugging safe filesystem terminal_stateful sandbox default full"
)
_DISTRIBUTIONS: Final = (
    "default image_gen research science development safe balanced minimal terminal_only terminal_web creative "
    "reasoning browser_use browser_only browser_tasks terminal_tasks mixed_tasks"
)

_PACKAGES: Final = {
    "hermes-sandbox": {"backend": "local", "lease_store": "files", "cli_command": "doctor sandboxes"},
    "hermes-tools": {
        "service": "processes",
        "toolset": _TOOLSETS,
        "toolset_distribution": _DISTRIBUTIONS,
        "tool": "terminal process read_file write_file patch search_files todo terminal_stateful tmux",
    },
    "hermes-models": {"model": "chat oracle nop", "cli_command": "serve-model"},
    "hermes-tokens": {"model": "vllm sglang atropos", "cli_command": "exactness record"},
    "hermes-runner": {"engine": "local", "task_source": "jsonl harbor", "cli_command": "report run tasks"},
    "hermes-tool-services": {"cli_command": "tool-executor tool-server"},
    "hermes-backend-docker": {"backend": "docker"},
    "hermes-backend-modal": {"backend": "modal"},
    "hermes-backend-ssh": {"backend": "ssh"},
    "hermes-backend-singularity": {"backend": "singularity apptainer"},
    "hermes-backend-nomad": {"backend": "nomad"},
    "hermes-backend-slurm": {"backend": "slurm"},
    "hermes-backend-ray": {"backend": "ray", "engine": "ray"},
    "hermes-pool": {"backend": "pool"},
    "hermes-parsers": {"parser": _PARSERS, "cli_command": "parsers"},
    "hermes-verifiers": {"verifier": _VERIFIERS},
}


def package_for(kind: str, name: str) -> str | None:
    """Return the distribution known to have a component, None if none is known."""
    for package, kinds in _PACKAGES.items():
        if name in kinds.get(kind, "").split():
            return package
    return None


def known_names(kind: str) -> list[str]:
    """Return the names of a kind that a known package has."""
    return [name for kinds in _PACKAGES.values() for name in kinds.get(kind, "").split()]
