"""The built-in tools of hermes-core: terminal, background processes, files, search, patch, todo.

`hermes_tools.agent_tools` offers hermes-agent's tool classes, for environments that define their own tools.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tools.catalog import TOOLS
    from hermes_tools.command_output import process_limit_note, shorten_output
    from hermes_tools.files.read_file import ReadFileTool
    from hermes_tools.interactive.terminal_stateful import TerminalStatefulTool
    from hermes_tools.interactive.tmux import TmuxTool
    from hermes_tools.processes.process import ProcessTool
    from hermes_tools.processes.process_actions import RolloutProcesses
    from hermes_tools.processes.process_registry import ProcessRegistry
    from hermes_tools.processes.process_session import ProcessSession
    from hermes_tools.terminal import TerminalTool

__all__ = [
    "TOOLS", "ProcessRegistry", "ProcessSession", "ProcessTool", "ReadFileTool", "RolloutProcesses",
    "TerminalStatefulTool", "TerminalTool", "TmuxTool", "process_limit_note", "shorten_output",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".catalog": "TOOLS",
            ".command_output": "process_limit_note shorten_output",
            ".files.read_file": "ReadFileTool",
            ".interactive.terminal_stateful": "TerminalStatefulTool",
            ".interactive.tmux": "TmuxTool",
            ".processes.process": "ProcessTool",
            ".processes.process_actions": "RolloutProcesses",
            ".processes.process_registry": "ProcessRegistry",
            ".processes.process_session": "ProcessSession",
            ".terminal": "TerminalTool",
        },
    )
