"""The predecessor's toolsets, under the names its users know. Tools nobody has installed are named all the same."""

from __future__ import annotations

from typing import Final

from hermes_core.specs import ToolsetSpec

_RL_ACTIONS: Final = (
    "list_environments select_environment get_current_config edit_config start_training check_status stop_training "
    "get_results list_runs test_inference"
)
_BROWSER_ACTIONS: Final = "navigate snapshot click type scroll back press get_images vision console cdp dialog"


def _set(name: str, summary: str, tools: str = "", includes: str = "") -> ToolsetSpec:
    return ToolsetSpec(name=name, summary=summary, tools=tuple(tools.split()), includes=tuple(includes.split()))


def _with_prefix(prefix: str, names: str) -> str:
    return " ".join(prefix + name for name in names.split())


TOOLSETS: Final[tuple[ToolsetSpec, ...]] = (
    _set("terminal", "Shell commands and background processes.", "terminal process"),
    _set("file", "Reading, writing, patching and searching files.", "read_file write_file patch search_files"),
    _set("todo", "A task list for the model itself.", "todo"),
    _set("web", "Searching the web and reading pages.", "web_search web_extract"),
    _set("search", "Searching the web only.", "web_search"),
    _set("vision", "Looking at images.", "vision_analyze"),
    _set("image_gen", "Making images.", "image_generate"),
    _set("browser", "Driving a browser.", _with_prefix("browser_", _BROWSER_ACTIONS) + " web_search"),
    _set("moa", "Asking a mixture of models.", "mixture_of_agents"),
    _set("skills", "Reading and keeping skills.", "skills_list skill_view skill_manage"),
    _set("memory", "Notes that outlive a conversation.", "memory"),
    _set("session_search", "Searching earlier conversations.", "session_search"),
    _set("code_execution", "Python scripts that call tools.", "execute_code"),
    _set("delegation", "Handing work to sub-agents.", "delegate_task"),
    _set("clarify", "Asking the user back.", "clarify"),
    _set("tts", "Speaking.", "text_to_speech"),
    _set("cronjob", "Scheduled jobs.", "cronjob"),
    _set("rl", "Starting and watching training runs.", _with_prefix("rl_", _RL_ACTIONS)),
    _set("debugging", "Terminal, web and files together.", "terminal process", "web file"),
    _set("safe", "Nothing that touches a machine.", includes="web vision image_gen"),
    _set("filesystem", "Reading and writing files only.", "read_file write_file"),
    _set("terminal_stateful", "Terminals that are watched like a screen.", "terminal_stateful tmux"),
    _set("sandbox", "Terminal and plain files.", includes="terminal filesystem"),
    _set("default", "The same as sandbox.", includes="sandbox"),
    _set("full", "Everything installed.", includes="all filesystem sandbox terminal_stateful"),
)

ALL_NAMES: Final = frozenset({"all", "*"})
"""Asks for every installed tool without external side effects; never a default."""

LEGACY_NAMES: Final[dict[str, str]] = {
    "web_tools": "web",
    "terminal_tools": "terminal",
    "vision_tools": "vision",
    "moa_tools": "moa",
    "image_tools": "image_gen",
    "skills_tools": "skills",
    "browser_tools": "browser",
    "cronjob_tools": "cronjob",
    "rl_tools": "rl",
    "file_tools": "file",
    "tts_tools": "tts",
}
"""Names of older configs; accepted everywhere a toolset is."""
