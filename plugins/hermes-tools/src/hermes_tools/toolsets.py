"""hermes-agent's toolsets, with its names. They also name tools that no installed plugin provides."""

from __future__ import annotations

from typing import Final

from hermes_core.specs import ToolsetSpec

_RL_ACTIONS: Final = (
    "list_environments select_environment get_current_config edit_config start_training check_status stop_training "
    "get_results list_runs test_inference"
)
_BROWSER_ACTIONS: Final = "navigate snapshot click type scroll back press get_images vision console cdp dialog"


def _set(name: str, summary: str, tools: str = "", includes: str = "", alias: str = "") -> ToolsetSpec:
    return ToolsetSpec(
        name=name,
        summary=summary,
        tools=tuple(tools.split()),
        includes=tuple(includes.split()),
        aliases=tuple(alias.split()),
    )


def _with_prefix(prefix: str, names: str) -> str:
    return " ".join(prefix + name for name in names.split())


# The aliases are the names in configs of older versions of hermes-agent.
TOOLSETS: Final[tuple[ToolsetSpec, ...]] = (
    _set("terminal", "Shell commands and background processes.", "terminal process", alias="terminal_tools"),
    _set(
        "file",
        "Reading, writing, patching and searching files.",
        "read_file write_file patch search_files",
        alias="file_tools",
    ),
    _set("todo", "A task list for the model itself.", "todo"),
    _set("web", "Searching the web and reading pages.", "web_search web_extract", alias="web_tools"),
    _set("search", "Searching the web only.", "web_search"),
    _set("vision", "Looking at images.", "vision_analyze", alias="vision_tools"),
    _set("image_gen", "Creating images.", "image_generate", alias="image_tools"),
    _set(
        "browser",
        "Controlling a browser.",
        _with_prefix("browser_", _BROWSER_ACTIONS) + " web_search",
        alias="browser_tools",
    ),
    _set("moa", "Asking a mixture of models.", "mixture_of_agents", alias="moa_tools"),
    _set("skills", "Reading and keeping skills.", "skills_list skill_view skill_manage", alias="skills_tools"),
    _set("memory", "Notes that outlive a conversation.", "memory"),
    _set("session_search", "Searching earlier conversations.", "session_search"),
    _set("code_execution", "Python scripts that call tools.", "execute_code"),
    _set("delegation", "Handing work to sub-agents.", "delegate_task"),
    _set("clarify", "Asking the user back.", "clarify"),
    _set("tts", "Speaking.", "text_to_speech", alias="tts_tools"),
    _set("cronjob", "Scheduled jobs.", "cronjob", alias="cronjob_tools"),
    _set("rl", "Starting and watching training runs.", _with_prefix("rl_", _RL_ACTIONS), alias="rl_tools"),
    _set("debugging", "Terminal, web and files together.", "terminal process", "web file"),
    _set("safe", "Nothing that touches a machine.", includes="web vision image_gen"),
    _set("filesystem", "Reading and writing files only.", "read_file write_file"),
    _set("terminal_stateful", "Terminals that are watched like a screen.", "terminal_stateful tmux"),
    _set("sandbox", "Terminal and plain files.", includes="terminal filesystem"),
    _set("default", "The same as sandbox.", includes="sandbox"),
    _set("full", "Everything installed.", includes="all filesystem sandbox terminal_stateful"),
)
