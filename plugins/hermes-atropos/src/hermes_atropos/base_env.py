"""`HermesAgentBaseEnv`: the base class for environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_atropos.author_code.own_rollouts import mark_own
from hermes_atropos.environment import Environment
from hermes_core.contracts.errors import ConfigError


class HermesAgentBaseEnv(Environment):
    """An environment with agentic rollouts: the model calls tools in a sandbox, and a reward scores the result.

    Phase 1 (servers of type openai): the server parses tool calls; the data are for SFT, tests and evaluation, and
    never sent to a trainer. Phase 2 (vllm, sglang): token ids and logprobs exactly as sampled.

    A subclass writes `compute_reward` and `evaluate`, and, if its items do not come from `dataset_name`, `setup`,
    `get_next_item` and `format_prompt`. All state belongs to this object; two environments share nothing.
    """

    _is_processed = False

    def _is_own(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(HermesAgentBaseEnv, method)

    async def env_manager(self) -> None:
        """Serve a trainer until all its steps are done."""
        from hermes_atropos.trainer.serving import Serving

        with mark_own(self.server.own):
            await Serving(self).run()

    async def process_manager(self) -> Mapping[str, Any]:
        """Run `total_steps` groups concurrently, write them to `data_path_to_save_groups`, and return the counts.

        Continues an earlier process that ended or was killed, if the file exists with its `.progress` beside it.
        """
        from hermes_atropos.trainer.processing import process

        if self._is_processed:
            raise ConfigError(
                f"process_manager() was already called on this {type(self).__name__}",
                hint="create a new environment for each call: this one is closed at the end",
            )
        self._is_processed = True
        with mark_own(self.server.own):
            return await process(self)

    @classmethod
    def cli(cls, arguments: Sequence[str] | None = None) -> None:
        """Run the command line: serve, process or evaluate."""
        from hermes_atropos.command import main

        main(cls, arguments)
