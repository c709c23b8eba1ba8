"""Report rollout tables and metrics under hermes-agent's keys, to wandb only if enabled."""

from __future__ import annotations

import logging
import random
import string
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hermes_atropos import ToolError
from hermes_atropos.compat import load_tokenizer, start_wandb
from hermes_atropos.config_redaction import redact_config
from hermes_atropos.trainer.transcript import format_trajectory
from hermes_core.contracts.rollout import RolloutOutcome

logger = logging.getLogger(__name__)


class ReportingMixin:
    """Mixin with an environment's reporting and the attributes that BaseEnv's methods expect."""

    config: Any
    server: Any
    name: str | None

    def _set_base_attributes(self) -> None:
        """Set the attributes of BaseEnv's constructor without starting anything."""
        self.items_sent_this_step = 0
        self.groups_written = 0
        self.eval_runner: Any = None
        self.workers_added_list: list[int] = []
        self.succeeded_task_duration: list[float] = []
        self.failed_task_duration: list[float] = []
        self.task_duration: list[float] = []
        self.mainloop_timings: list[float] = []
        self.task_successful: list[int] = []
        self.last_loop_time: float | None = None
        self.last_completed_item: Any = None
        self.workers: set[Any] = set()
        self.eval_workers: set[Any] = set()
        self.backlog: list[Any] = []
        self.running_items: dict[Any, Any] = {}
        self.rollouts_for_wandb: list[list[tuple[str, float]]] = []
        self.completion_lengths: list[int] = []
        self.wandb_project: str | None = None
        self.wandb_group: str | None = None
        self.wandb_prepend: str | None = None
        self.curr_step = 0
        self.max_token_len = -1
        self.checkpoint_dir = ""
        self.checkpoint_interval = -1
        self.jsonl_writer = None
        self.process_mode = False
        self._tool_error_buffer: list[dict[str, Any]] = []
        self._tokenizer: Any = None

    def _worker_limit(self) -> int:
        """Return the maximum number of groups in flight."""
        if self.config.max_num_workers != -1:
            return int(self.config.max_num_workers)
        return int(self.config.max_num_workers_per_node * max(1, len(self.server.servers)))

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers, loaded on first use."""
        return self.load_tokenizer()

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def load_tokenizer(self) -> Any:
        """Return the tokenizer; the first call reads its files."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.config.tokenizer_name)
        return self._tokenizer

    async def add_rollouts_for_wandb(self, scored_data: Mapping[str, Any], item: Any = None) -> None:  # noqa: ARG002 - hermes-agent's signature
        """Keep some of a group's conversations for the rollout table."""
        scores: Sequence[float] = scored_data.get("scores") or ()
        keep = self.config.num_rollouts_per_group_for_logging
        shown = range(len(scores) if keep == -1 else min(keep, len(scores)))
        self.rollouts_for_wandb.append([(self._rollout_text(scored_data, index), scores[index]) for index in shown])
        if len(self.rollouts_for_wandb) > self.config.num_rollouts_to_keep:
            self.rollouts_for_wandb.pop(0)

    def _rollout_text(self, group: Mapping[str, Any], index: int) -> str:
        messages = (group.get("messages") or [])[index : index + 1]
        if messages and messages[0]:
            return format_trajectory(messages[0])
        tokens = (group.get("tokens") or [[]])[index]
        if not tokens:
            return "(no data)"
        # Without wandb the table is not shown, and it might need a tokenizer download.
        has_reader = self._tokenizer is not None or self.config.use_wandb
        return str(self.tokenizer.decode(tokens)) if has_reader else f"({len(tokens)} tokens)"

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        """Add the rollout table; only possible with wandb."""
        if not self.config.use_wandb:
            return wandb_metrics
        made: dict[str, Any] = await super().create_rollout_table(wandb_metrics)  # type: ignore[misc]  # BaseEnv has it
        return made

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log metrics, including tool errors; to wandb only if enabled."""
        metrics = {} if wandb_metrics is None else wandb_metrics
        errors, self._tool_error_buffer = self._tool_error_buffer, []
        metrics["train/tool_errors_count"] = len(errors)
        if errors:
            metrics["train/tool_error_details"] = "\n".join(map(_summary, errors))
        await super().wandb_log(metrics)  # type: ignore[misc]  # BaseEnv has it

    def _note_tool_errors(self, outcomes: Sequence[RolloutOutcome]) -> None:
        self._tool_error_buffer += [_buffer_entry(error) for outcome in outcomes for error in outcome.tool_errors]

    def begin_wandb(self) -> None:
        """Start a wandb run under this environment's name, if wandb is enabled."""
        if not self.config.use_wandb:
            return
        name = self.config.wandb_name or self.name
        letters = "".join(random.choices(string.ascii_lowercase, k=6))  # noqa: S311 - a run's name
        run_name = f"{name}-{datetime.now(UTC):%Y-%m-%d}-{letters}"
        start_wandb(redact_config(self.config), project=self.wandb_project, group=self.wandb_group, name=run_name)


def _buffer_entry(error: ToolError) -> dict[str, Any]:
    """Return an error in the form of hermes-agent's buffer, also used by own rollouts."""
    return {
        "turn": error.turn,
        "tool": error.tool_name,
        "args": error.arguments[:150],
        "error": error.error[:300],
        "result": error.tool_result[:300],
    }


def _summary(error: Mapping[str, Any]) -> str:
    return f"[turn {error['turn']}] {error['tool']}({error['args'][:80]}) -> {error['error'][:150]}"
