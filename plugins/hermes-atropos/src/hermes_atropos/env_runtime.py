"""The live parts of one environment: plugins, runtime, servers, planner, ledger; opened and closed together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_atropos.author_code.own_rollouts import OwnRollouts
from hermes_atropos.author_code.reward import Compute, RewardMaker, reward_spec
from hermes_atropos.config import HermesAgentEnvConfig
from hermes_atropos.config_redaction import scrubber_of
from hermes_atropos.groups.ledger import Ledger
from hermes_atropos.groups.planning import Planner
from hermes_atropos.model_servers.model_pool import ModelPool, RecordingModelPool, ServerLane, open_model_pool
from hermes_atropos.model_servers.request_fields import reasoning_fields, sampling_of
from hermes_atropos.model_servers.server_list import server_list
from hermes_atropos.model_servers.servers import Servers
from hermes_atropos.trainer.journal import Journal
from hermes_core.contracts.errors import HermesError
from hermes_core.contracts.model import ModelClient
from hermes_core.contracts.sandbox import RootBackend
from hermes_core.contracts.tokens import RecordingModel
from hermes_core.discovery import Registry, load_plugins
from hermes_core.rollout import FindTool, Runtime
from hermes_core.specs import Ref
from hermes_models import NopModel

logger = logging.getLogger(__name__)
_MANY = 1_000_000


class EnvRuntime:
    """The live objects that the rollouts of one environment share. Belongs to one event loop.

    `testing` replaces the servers by a model that needs none. `scrubber` removes the configuration's secrets from an
    engine's messages.
    """

    def __init__(
        self,
        config: HermesAgentEnvConfig,
        server_configs: Any,
        *,
        slurm: bool,
        testing: bool,
        compute_reward: Compute,
        reward_needs_sandbox: bool,
        build_model: Callable[[], ModelClient | None],
        find_tool: FindTool,
    ) -> None:
        self.configs = server_list(server_configs, slurm=slurm)
        registry = load_plugins(config.plugin_settings())
        self.scrubber = scrubber_of(config, self.configs, registry)
        model = build_model() or (NopModel() if testing else None)
        self.model_pool = open_model_pool(config, self.configs, registry) if model is None else _model_pool_of(model)
        missing_tools = set[str]()
        declared = reward_spec(needs_sandbox=reward_needs_sandbox, lowest=config.lowest_reward)
        rewarding = registry.with_component(declared, RewardMaker(compute_reward, missing_tools))
        self.runtime = _runtime(
            config, rewarding, find_tool, is_recording=isinstance(self.model_pool, RecordingModelPool)
        )
        own = OwnRollouts(self.runtime, missing_tools)
        self.server = Servers(self.model_pool, self.configs, own, reasoning_fields(config, self.configs))
        sampling = sampling_of(config, self.configs, is_checked=model is None)
        self.planner = Planner(config, registry, sampling)
        self.generation_params = {
            "temperature": sampling["temperature"],
            "max_tokens": sampling["max_tokens"],
            "logprobs_mode": config.logprobs_mode,
        }
        self._journal = None if config.ledger_path is None else Journal(Path(config.ledger_path))
        self.ledger = Ledger(None if self._journal is None else self._journal.append)

    async def check(self, *, needs_sandbox: bool) -> None:
        """Check the servers and, if rollouts need a sandbox, the backend."""
        await self.model_pool.check()
        if not needs_sandbox:
            return
        try:
            await self.runtime.backend.check(self.runtime.sandbox_spec)
        except HermesError as error:
            self.scrubber.error(error)
            raise
        self._warn_of_root()

    def _warn_of_root(self) -> None:
        backend = self.runtime.backend
        if isinstance(backend, RootBackend) and backend.commands_are_root(self.runtime.sandbox_spec):
            logger.warning(
                "commands are root in sandboxes of %r, so a model can replace the programs that compute_reward runs "
                "there; set the backend's option `user`, or read files with ctx.read_file and judge them here",
                self.runtime.backend_ref.name,
            )

    async def aclose(self) -> None:
        """Close sandboxes, connections and the ledger's file."""
        try:
            await self.server.own.aclose()
            await self.runtime.aclose()
            await self.model_pool.aclose()
        finally:
            if self._journal is not None:
                await self._journal.aclose()


def _model_pool_of(model: ModelClient) -> ModelPool:
    lanes = [ServerLane(model, requests=_MANY, eval_requests=_MANY)]
    return RecordingModelPool(lanes) if isinstance(model, RecordingModel) else ModelPool(lanes)


def _runtime(config: HermesAgentEnvConfig, registry: Registry, find_tool: FindTool, *, is_recording: bool) -> Runtime:
    parser = None
    name = config.tool_call_parser
    # A chat server parses calls itself; unparsed ones are parsed here if the parser is installed.
    if name is not None and (is_recording or name in registry.names("parser")):
        parser = Ref(kind="parser", name=name, options=config.tool_call_parser_options)
    return Runtime(
        registry,
        backend=config.backend_ref(),
        sandbox=config.sandbox_spec(),
        parser=parser,
        budget=config.result_budget(),
        tool_pool_size=config.tool_pool_size,
        max_sandbox_starts=config.max_sandbox_starts,
        verifier_timeout=config.verifier_timeout,
        find_tool=find_tool,
    )
