"""Compare the settings of a `process` with those of its file: those that determine groups must be equal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.config_redaction import redact_config
from hermes_core.contracts.errors import OutputError
from hermes_core.contracts.model import encode
from hermes_core.redaction import comparable_values

logger = logging.getLogger(__name__)

ANOTHER: Final = "give another file: --env.data_path_to_save_groups FILE"

_DECISIVE: Final = frozenset({
    "models", "tokenizer_name", "dataset_items", "prompt_field", "seed",
    "sampling", "extra_body", "agent_temperature", "agent_max_tokens", "chat_template_kwargs", "tool_call_parser",
    "tool_call_parser_options", "thinking_mode", "reasoning_effort", "max_reasoning_tokens", "logprobs_mode",
    "system_prompt", "custom_thinking_prompt", "enabled_toolsets", "disabled_toolsets", "distribution",
    "default_result_size_chars", "turn_budget_chars", "preview_size_chars", "tool_result_overrides",
    "agent_tool_metadata", "terminal_backend", "tool_pool_mode", "terminal_timeout", "sandbox", "sandbox_image",
    "singularity_image", "modal_image", "allow_network",
    "max_agent_turns", "agent_max_steps", "time_limit", "max_total_tokens", "max_tool_calls", "max_token_length",
    "group_size", "min_group_size", "failed_rollouts", "policy", "ensure_scores_are_not_same", "allow_branches",
    "lowest_reward",
})  # fmt: skip
"""The items of `dataset_name` are compared, not its spelling."""
_NEUTRAL: Final = frozenset({
    "total_steps", "data_path_to_save_groups", "data_dir_to_save_evals", "ledger_path", "use_wandb", "wandb_name",
    "max_concurrent_groups", "max_num_workers", "max_num_workers_per_node", "max_eval_workers", "tool_pool_size",
    "max_sandbox_starts", "worker_timeout", "max_attempts", "require_exact", "steps_per_eval", "eval_handling",
    "eval_limit_ratio", "inference_weight", "batch_size", "max_batches_offpolicy", "min_batch_allocation",
    "rollout_server_url", "num_rollouts_to_keep", "num_rollouts_per_group_for_logging", "api_patience",
    "min_items_sent_before_logging", "serve_poll_interval",
})  # fmt: skip
"""Paths, counts and speed: a change gives no warning."""


def settings_of(config: HermesAgentEnvConfig, servers: Iterable[Any]) -> dict[str, Any]:
    """Return the recorded part of a configuration; of the servers only the models."""
    settings = {name: value for name, value in redact_config(config).items() if name not in _NEUTRAL}
    return {**settings, "models": sorted({f"{server.server_type} {server.model_name}" for server in servers})}


def compare(path: Path, begun: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise `OutputError` if groups would differ from those in the file; warn about other differences.

    A field that only one side has is not a difference: it may be from another version.
    """
    old, new = _plain(begun), _plain(json.loads(encode(given)))
    different = [key for key in given if key in begun and not _is_same(key, old.get(key), new.get(key))]
    if decisive := [key for key in different if key in _DECISIVE]:
        said = ", ".join(f"{key} ({_brief(old.get(key))} then, {_brief(new.get(key))} now)" for key in decisive)
        raise OutputError(
            f"{path} was started with other settings: {said}",
            hint=f"give the same settings to continue it, or {ANOTHER}",
        )
    if different:
        logger.warning("%s was started with another %s: continuing with the new value", path, ", ".join(different))


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = comparable_values(settings)
    return plain


def _is_same(key: str, old: Any, new: Any) -> bool:
    if key == "tokenizer_name" and isinstance(old, str) and isinstance(new, str) and Path(new).is_dir():
        return Path(old).resolve() == Path(new).resolve()
    return bool(old == new)


def _brief(value: Any) -> str:
    return f"{value!r:.60}"
