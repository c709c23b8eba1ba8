"""Every work-around for atroposlib 0.4.0, the one module that imports it.

Each guard names the defect it answers, by its number in the tests `test_atropos_compat.py` and
`test_atropos_token_defects.py`. They first show it on bare atroposlib, so that a version without it is noticed. What is
replaced as a whole, rather than guarded, is named in `REPLACED`.
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
    "BaseEnv.handle_send_to_api": "drops what a 4xx answers, and groups whose group_overrides is None",
    "BaseEnv.env_manager": "cancels rollouts in flight when the queue is full or an evaluation starts",
    "BaseEnv.process_manager": "plays one group at a time; a failing one ends the run; forces use_wandb",
    "ServerManager.managed_server": "takes no tool_call_parser; parses tool calls only where vLLM is installed",
    "ManagedServer": "doubles close tokens, loses turns to a changed history, hides cut turns, makes up logprobs",
    "OpenAIServer": "samples once a second to see whether the server is there; sends a refused request nine times",
}
"""What of atroposlib is not used at all, and why."""

MASKED_LOGPROB: Final = 1.0
"""What Atropos' wire format holds where no token was sampled; its API refuses null, its trainers expect this number."""

logger = logging.getLogger(__name__)

_HINT: Final = "pip install hermes-atropos"
_IMPORTING: Final = threading.Lock()


class _OnUse(types.ModuleType):
    """Stands for a module until one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _import_on_use(name: str) -> Iterator[None]:
    """Let `import name` inside the block bind a stand-in; a module that is there already stays."""
    if name in sys.modules:
        yield
        return
    stand_in = _OnUse(name)
    # Other packages look whether it is installed, and stumble over a module without a spec.
    stand_in.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def _load() -> types.ModuleType:
    """Import `atroposlib.envs.base` without wandb (defect 16), and with the log level it found."""
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
    """Load a tokenizer; from a folder without asking the network for anything (defect 16)."""
    transformers: Any = importlib.import_module("transformers")
    try:
        if Path(name).is_dir():
            return transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer_name: a folder or the name of a Hugging Face tokenizer was wanted, {name!r} cannot be loaded:"
            f" {str(error)[:300]}",
            hint="--env.tokenizer_name FOLDER, with tokenizer.json and tokenizer_config.json in it",
        ) from error


def rendered_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
    """Apply a chat template and return ids; transformers 5 answers a mapping where 4 answered a list (Versions)."""
    rendered = tokenizer.apply_chat_template(list(messages), tokenize=True, **options)
    ids = rendered["input_ids"] if isinstance(rendered, Mapping) or hasattr(rendered, "input_ids") else rendered
    return [int(token) for token in ids]


def reasoning_body(config: Any, base_url: str | None) -> dict[str, Any]:
    """Return what thinking_mode, reasoning_effort and max_reasoning_tokens add to a request of a chat server."""
    body: dict[str, Any] | None = _reasoning(config).build_extra_body(base_url)
    return body or {}


def warn_of_budget(config: Any, base_url: str | None) -> None:
    """Say in the log where a chat server is sent another field in the place of max_reasoning_tokens."""
    if config.max_reasoning_tokens is None:
        return
    if config.reasoning_effort is not None:
        logger.warning("max_reasoning_tokens has no effect: reasoning_effort takes priority at a chat server")
    elif "api.openai.com" in (base_url or ""):
        logger.warning(
            "max_reasoning_tokens has no effect: api.openai.com takes none, and is sent reasoning_effort 'medium';"
            " set reasoning_effort"
        )


def is_reasoning(config: Any) -> bool:
    """Tell whether a config asks for reasoning; an unknown reasoning_effort is a `ConfigError`."""
    return bool(_reasoning(config).is_reasoning_kwargs_active())


def _reasoning(config: Any) -> Any:
    try:
        return ReasoningConfig.from_env_config(config)
    except ValueError as error:
        raise ConfigError(f"reasoning_effort: {error}") from error


def declared_group_size(group: Mapping[str, Any], default: int) -> int:
    """Return a group's size; `group_overrides` may be None, on which BaseEnv stumbles (defect 12)."""
    overrides = group.get("group_overrides") or {}
    return int(overrides.get("group_size", default))


def start_wandb(config: Mapping[str, Any], *, project: str | None, group: str | None, name: str | None) -> None:
    """Begin a wandb run; imported here and nowhere else, when a config asks for it."""
    wandb: Any = importlib.import_module("wandb")
    wandb.init(name=name, project=project, group=group, config=dict(config))
