"""All workarounds for atroposlib 0.4.0; the only module that imports it.

Each guard names its defect by the number in the tests `test_atropos_compat.py` and `test_atropos_token_defects.py`. The
tests first show the defect on bare atroposlib, so that a version without it is noticed. Parts that are replaced as a
whole are listed in `REPLACED`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError, UnavailableComponentError

REPLACED: Final[Mapping[str, str]] = {
    "BaseEnv.__init__": "loads a tokenizer over the network and starts servers before anything is checked",
    "BaseEnv.collect_trajectories": "drops inference_logprobs, loses a group to one failure, leaves orphans running",
    "BaseEnv.handle_send_to_api": "drops groups that the API refuses (4xx), and groups whose group_overrides is None",
    "BaseEnv.env_manager": "cancels rollouts in flight when the queue is full or an evaluation starts",
    "BaseEnv.process_manager": "runs one group at a time; a failing one ends the run; forces use_wandb",
    "ServerManager.managed_server": "takes no tool_call_parser; parses tool calls only where vLLM is installed",
    "ManagedServer": "doubles close tokens, loses turns to a changed history, hides cut turns, makes up logprobs",
    "OpenAIServer": "samples once a second to see whether the server is there; sends a refused request nine times",
}
"""The parts of atroposlib that are not used, with the reason."""

MASKED_LOGPROB: Final = 1.0
"""Atropos' placeholder for a token that was not sampled; its API refuses null, its trainers expect this number."""

logger = logging.getLogger(__name__)

_HINT: Final = "pip install hermes-atropos"
_IMPORTING: Final = threading.Lock()


class _OnUse(types.ModuleType):
    """A placeholder for a module until one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _import_on_use(name: str) -> Iterator[None]:
    """Make `import name` in the block bind a placeholder; an already imported module stays."""
    if name in sys.modules:
        yield
        return
    stand_in = _OnUse(name)
    # Other packages check whether it is installed, and fail on a module without a spec.
    stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def _load() -> types.ModuleType:
    """Import `atroposlib.envs.base` without wandb and without a change of the log level."""
    with _IMPORTING, _import_on_use("wandb"):
        try:
            base = importlib.import_module("atroposlib.envs.base")
        except ImportError as error:
            if error.name == "atroposlib":
                needed = "the Atropos environments need atroposlib, which is not installed"
                raise UnavailableComponentError(needed, hint=_HINT) from error
            raise UnavailableComponentError(f"atroposlib cannot be imported: {error}", hint=_HINT) from error
    logging.getLogger("atroposlib.envs.base").setLevel(logging.NOTSET)
    return base


_base: Any = _load()
BaseEnv: Any = _base.BaseEnv
BaseEnvConfig: Any = _base.BaseEnvConfig
APIServerConfig: Any = _base.APIServerConfig
ServerBaseline: Any = _base.ServerBaseline
ReasoningConfig: Any = _base.ReasoningConfig
EvalHandlingEnum: Any = _base.EvalHandlingEnum
ScoredDataGroup: Any = _base.ScoredDataGroup
ScoredDataItem: Any = _base.ScoredDataItem


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer; from a folder without any network access."""
    transformers: Any = importlib.import_module("transformers")
    try:
        if Path(name).is_dir():
            return transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer_name: expected a folder or the name of a Hugging Face tokenizer, got {name!r}, which cannot "
            "be loaded:"
            f" {str(error)[:300]}",
            hint="--env.tokenizer_name FOLDER with tokenizer.json and tokenizer_config.json",
        ) from error


def rendered_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
    """Apply a chat template and return ids; transformers 5 returns a mapping, version 4 a list (Versions)."""
    rendered = tokenizer.apply_chat_template(list(messages), tokenize=True, **options)
    ids = rendered["input_ids"] if isinstance(rendered, Mapping) or hasattr(rendered, "input_ids") else rendered
    return [int(token) for token in ids]


def reasoning_body(config: Any, base_url: str | None) -> dict[str, Any]:
    """Return the request fields of a chat server for thinking_mode, reasoning_effort and max_reasoning_tokens."""
    body: dict[str, Any] | None = _reasoning(config).build_extra_body(base_url)
    return body or {}


def warn_of_budget(config: Any, base_url: str | None) -> None:
    """Warn if a chat server gets another field instead of max_reasoning_tokens."""
    if config.max_reasoning_tokens is None:
        return
    if config.reasoning_effort is not None:
        logger.warning("max_reasoning_tokens has no effect: reasoning_effort takes priority at a chat server")
    elif "api.openai.com" in (base_url or ""):
        logger.warning(
            "max_reasoning_tokens has no effect: api.openai.com does not support it and gets reasoning_effort "
            "'medium'; set reasoning_effort"
        )


def is_reasoning(config: Any) -> bool:
    """Return whether a config requests reasoning; an unknown reasoning_effort is a `ConfigError`."""
    return bool(_reasoning(config).is_reasoning_kwargs_active())


def _reasoning(config: Any) -> Any:
    try:
        return ReasoningConfig.from_env_config(config)
    except ValueError as error:
        raise ConfigError(f"reasoning_effort: {error}") from error


def declared_group_size(group: Mapping[str, Any], default: int) -> int:
    """Return a group's size; `group_overrides` may be None, on which BaseEnv fails."""
    overrides = group.get("group_overrides") or {}
    return int(overrides.get("group_size", default))


def start_wandb(config: Mapping[str, Any], *, project: str | None, group: str | None, name: str | None) -> None:
    """Start a wandb run; wandb is imported only here, and only if the config enables it."""
    wandb: Any = importlib.import_module("wandb")
    wandb.init(name=name, project=project, group=group, config=dict(config))
