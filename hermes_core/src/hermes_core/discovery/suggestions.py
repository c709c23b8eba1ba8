"""Which package brings a component that is not installed."""

from __future__ import annotations

from typing import Final

_PARSERS: Final = (
    "hermes qwen longcat llama3_json llama4_json mistral qwen3_coder glm45 glm47 kimi_k2 deepseek_v3 deepseek_v3_1 "
    "deepseek_v31"
)
_VERIFIERS: Final = (
    "exit_code file_content pytest script exact_match regex_match numeric_match json_schema weighted gated"
)

_PACKAGES: Final = {
    "hermes-agent-core": {
        "backend": "local",
        "tool": "terminal read_file write_file patch search_files todo",
        "task_source": "jsonl harbor",
    },
    "hermes-backend-docker": {"backend": "docker"},
    "hermes-backend-modal": {"backend": "modal"},
    "hermes-backend-ssh": {"backend": "ssh"},
    "hermes-backend-singularity": {"backend": "singularity apptainer"},
    "hermes-backend-nomad": {"backend": "nomad"},
    "hermes-backend-slurm": {"backend": "slurm"},
    "hermes-backend-ray": {"backend": "ray"},
    "hermes-parsers": {"parser": _PARSERS},
    "hermes-tools-web": {"tool": "web_search web_extract"},
    "hermes-verifiers": {"verifier": _VERIFIERS},
}


def package_for(kind: str, name: str) -> str | None:
    """Return the distribution known to bring a component, None if nobody is known to."""
    if kind == "tool" and name.startswith("browser_"):
        return "hermes-tools-browser"
    for package, kinds in _PACKAGES.items():
        if name in kinds.get(kind, "").split():
            return package
    return None


def known_names(kind: str) -> list[str]:
    """Return the names of a kind that some package is known to bring."""
    return [name for kinds in _PACKAGES.values() for name in kinds.get(kind, "").split()]
