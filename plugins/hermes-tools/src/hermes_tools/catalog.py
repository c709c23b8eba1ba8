"""The nine tools that this package declares. Light: no implementation is imported here."""

from __future__ import annotations

from typing import Any, Final

from hermes_core.specs import ToolSpec

_PATH_RULE: Final = "Absolute, or relative to the workspace (not to the directory the terminal is in)."
_PATH: Final = {
    "type": "string",
    "minLength": 1,
    "description": _PATH_RULE,
}


def _object(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _integer(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, **more}


def _number(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "number", "description": description, **more}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "default": False, "description": description}


_TERMINAL: Final = ToolSpec(
    name="terminal",
    summary="Run a bash command in the rollout's session.",
    target="hermes_tools.terminal:TerminalTool",
    toolset="terminal",
    description=(
        "Run a bash command. The session is kept between calls: the current directory, exported variables and "
        "functions survive. The answer holds output (stdout and stderr together), exit_code and error. A command that "
        "takes longer than its timeout is stopped and answered with exit code 124; the session goes on. There is no "
        "terminal attached: use non-interactive flags. To read, change or search files prefer read_file, patch, "
        "write_file and search_files. A server, a long build or an interactive program: set background to true, "
        "which answers a session_id at once, and go on with the tool process."
    ),
    parameters=_object(
        ("command",),
        command=_text("The command, as you would type it into bash. Several lines are fine.", minLength=1),
        timeout=_integer("Seconds the command may take, at most 600. Leave it out for the default.", minimum=1),
        workdir=_text("Directory to run this one command in; the session's own directory stays.", minLength=1),
        background=_flag(
            "Start the command and answer its session_id at once, without waiting. It begins in the session's present "
            "directory with its variables and functions, and changes nothing there."
        ),
        pty=_flag(
            "With background: give the program a terminal, for what asks or behaves otherwise without one (a Python "
            "prompt, a password question)."
        ),
        check_interval=_integer("With background: seconds between two reports to observers, at least 30.", minimum=1),
        notify_on_complete=_flag("With background: observers are told when it has ended. Replaces watch_patterns."),
        watch_patterns={
            "type": "array",
            "items": _text("Plain text, not a regular expression.", minLength=1),
            "maxItems": 20,
            "description": "With background: observers are told when one of these texts appears in its output.",
        },
    ),
)

_PROCESS: Final = ToolSpec(
    name="process",
    summary="Look at, wait for, feed and end background processes.",
    target="hermes_tools.processes.process:ProcessTool",
    toolset="terminal",
    description=(
        "Manage the processes that terminal has started with background true. Actions:\n"
        "list: all of yours, running or ended in the last 30 minutes.\n"
        "poll: status, and the output that is new since your last poll.\n"
        "log: lines of the output; the last ones unless offset says otherwise.\n"
        "wait: until it has ended, at most timeout seconds; 'timeout' in the answer means that it goes on.\n"
        "kill: end it and everything it has started.\n"
        "write: send data to its input as it is. submit: the same and Enter. close: end of input.\n"
        "All but list need session_id. To answer a question of a program use submit, then poll; to interrupt one that "
        "was started with pty, write the character \\u0003. An exit_code of 128+n means ended by signal n."
    ),
    parameters=_object(
        ("action",),
        action=_text("What to do.", enum=["list", "poll", "log", "wait", "kill", "write", "submit", "close"]),
        session_id=_text("The process, as terminal has answered it: proc_ and 12 characters."),
        data=_text("Text for write and submit."),
        timeout=_integer("Seconds that wait may take at most. Leave it out for the longest.", minimum=1),
        offset=_integer(
            "For log: number of the first line, counted from 0; negative counts from the end. 0 means the last lines, "
            "unless from_start is true.",
            default=0,
        ),
        limit=_integer("For log: how many lines.", minimum=1, maximum=10_000, default=200),
        from_start=_flag("For log: with offset 0, begin at the first line that is kept."),
    ),
    max_result_size_chars=-1,
)

_SCREEN: Final = ("dist:pyte>=0.8.2,<0.9", "dist:ptyprocess>=0.7,<1")

_TERMINAL_STATEFUL: Final = ToolSpec(
    name="terminal_stateful",
    summary="Run a bash command in the rollout's interactive terminal.",
    target="hermes_tools.interactive.terminal_stateful:TerminalStatefulTool",
    requires=_SCREEN,
    toolset="terminal_stateful",
    description=(
        "Run a bash command in an interactive terminal that stays: everything of the shell survives, with variables, "
        "jobs and programs that still run. The answer holds output, as it would be read on the screen, exit_code and "
        "error. A command that takes longer than its timeout gets C-c; if it goes on all the same, the answer says so "
        "with exit_code null, and the terminal stays as it is. It is the terminal that tmux looks at: use tmux for "
        "programs that ask something or fill the screen. While something runs in the terminal, nothing is run."
    ),
    parameters=_object(
        ("command",),
        command=_text("The command, as you would write it in a script. Several lines are fine.", minLength=1),
        timeout=_integer("Seconds the command may take.", minimum=1, maximum=600, default=120),
    ),
)

_TMUX: Final = ToolSpec(
    name="tmux",
    summary="Type into the rollout's interactive terminal and read its screen.",
    target="hermes_tools.interactive.tmux:TmuxTool",
    requires=_SCREEN,
    toolset="terminal_stateful",
    description=(
        "Drive an interactive terminal: editors, pagers, prompts, anything that fills a screen. Actions:\n"
        "start: start it, or change its size; reset true ends the old one first.\n"
        "send_keys: type keys, then answer the screen. It starts the terminal if need be.\n"
        "capture: answer the screen; with capture_entire also what has scrolled out of it.\n"
        "stream: answer the raw output from cursor on; pass the cursor of the answer in the next call.\n"
        "stop: end the terminal and everything in it.\n"
        "An answer with a screen holds cursor_position (row and column, from 0), and full_screen while a full-screen "
        "program is in charge."
    ),
    parameters=_object(
        ("action",),
        action=_text("What to do.", enum=["start", "send_keys", "stream", "capture", "stop"]),
        keys={
            "type": "array",
            "items": _text("The name of a key, or literal text."),
            "description": (
                "For send_keys, in order. Names as in tmux: Enter, Escape, Tab, BTab, Space, BSpace, Up, Down, Left, "
                "Right, Home, End, PPage, NPage, IC, DC, F1 to F12, with C-, M- or S- before them, such as C-c, M-x, "
                "S-Up. Everything else is typed as it is, also a name that is not known: ['ls -l', 'Enter']."
            ),
        },
        block=_flag(
            "For send_keys: wait until the shell is back at its prompt and answer completed and the exit_code. Do not "
            "use it for a program that stays."
        ),
        min_wait_s=_number("For send_keys: seconds to wait at least; 0.3 without block.", minimum=0, maximum=600),
        max_wait_s=_number(
            "For send_keys with block: seconds to wait at most; nothing is interrupted then.",
            minimum=0,
            maximum=600,
            default=60,
        ),
        capture_entire=_flag("For capture: also the lines above the screen, at most 20,000."),
        cursor=_integer(
            "For stream: the cursor of your last answer; 0 for the oldest output that is kept.", minimum=0, default=0
        ),
        max_bytes=_integer(
            "For stream and capture_entire: how much to answer at most; what is left out is counted.",
            minimum=1,
            maximum=200_000,
            default=50_000,
        ),
        reset=_flag("For start: end the terminal that is there and start a new one."),
        pane_width=_integer("For start: columns; 120 if left out.", minimum=20, maximum=500),
        pane_height=_integer("For start: rows; 40 if left out.", minimum=10, maximum=200),
    ),
)

_READ_FILE: Final = ToolSpec(
    name="read_file",
    summary="Read a text file with line numbers.",
    target="hermes_tools.files.read_file:ReadFileTool",
    toolset="file",
    description=(
        "Read a text file. Each line comes as its number, a bar, and its text; the numbers are not part of the file. "
        "Long files are read in parts with offset and limit; truncated tells whether lines follow. If the path does "
        "not exist, similar names are listed. Binary files are refused."
    ),
    parameters=_object(
        ("path",),
        path=_PATH,
        offset=_integer("Number of the first line to read, counted from 1.", minimum=1, default=1),
        limit=_integer("How many lines to read.", minimum=1, maximum=2000, default=500),
    ),
    parallel_safe=True,
    side_effects="none",
    max_result_size_chars=-1,
)

_WRITE_FILE: Final = ToolSpec(
    name="write_file",
    summary="Write a whole file.",
    target="hermes_tools.files.write_file:WriteFileTool",
    toolset="file",
    description=(
        "Write a file, replacing all of its content; missing parent directories are created. To change a part of an "
        "existing file use patch."
    ),
    parameters=_object(("path", "content"), path=_PATH, content=_text("The complete new content of the file.")),
)

_PATCH: Final = ToolSpec(
    name="patch",
    summary="Change parts of files, by find and replace or by a patch text.",
    target="hermes_tools.files.patch:PatchTool",
    toolset="file",
    description=(
        "Change files. Mode 'replace' (default) replaces old_string by new_string in path; old_string must occur "
        "exactly once unless replace_all is true, so give enough surrounding lines. Small differences in white space, "
        "quotes or escapes are tolerated, and the answer says which. Mode 'patch' takes a patch text that may touch "
        "several files; either all of it is applied or nothing. Format:\n"
        "*** Begin Patch\n*** Update File: path\n@@ line above the change, such as a def\n unchanged line\n-old line\n"
        "+new line\n*** Add File: path\n+content\n*** Delete File: path\n*** End Patch\n"
        "'*** Move to: newpath' after an Update File line renames. The answer holds a unified diff."
    ),
    parameters=_object(
        mode={
            "type": "string",
            "enum": ["replace", "patch"],
            "default": "replace",
            "description": "'replace' needs path, old_string and new_string; 'patch' needs patch.",
        },
        path=_PATH,
        old_string=_text("Text to find, with enough lines around it to be unique."),
        new_string=_text("Text to put in its place; may be empty to delete."),
        replace_all={"type": "boolean", "default": False, "description": "Replace every occurrence."},
        patch=_text("The patch text for mode 'patch'."),
    ),
)

_SEARCH_FILES: Final = ToolSpec(
    name="search_files",
    summary="Search file contents by regular expression, or files by name.",
    target="hermes_tools.files.search_files:SearchFilesTool",
    toolset="file",
    description=(
        "Search below a directory. With target 'content' pattern is a regular expression that is looked for in every "
        "text file; with target 'files' it is a glob for names, such as '*.py', or a part of the name. Results are "
        "sorted by path; when truncated is true, go on with offset. Version control directories are left out."
    ),
    parameters=_object(
        ("pattern",),
        pattern=_text("Regular expression (target 'content') or name glob (target 'files').", minLength=1),
        target={
            "type": "string",
            "enum": ["content", "files"],
            "default": "content",
            "description": "What to search: file contents or file names.",
        },
        path={**_PATH, "default": ".", "description": f"Directory or file to search. {_PATH_RULE}"},
        file_glob=_text("Only search files whose name matches this glob, such as '*.{ts,tsx}'.", minLength=1),
        limit=_integer("How many results to return.", minimum=1, maximum=1000, default=50),
        offset=_integer("How many results to skip.", minimum=0, default=0),
        output_mode={
            "type": "string",
            "enum": ["content", "files_only", "count"],
            "default": "content",
            "description": "Matching lines, only the names of matching files, or the number of matches per file.",
        },
        context=_integer("How many lines to show before and after each match.", minimum=0, maximum=20, default=0),
    ),
    parallel_safe=True,
    side_effects="none",
)

_TODO: Final = ToolSpec(
    name="todo",
    summary="Keep the rollout's task list.",
    target="hermes_tools.todo:TodoTool",
    toolset="todo",
    description=(
        "Keep a list of the steps of your work. Without todos the list is only read. With todos it is replaced; with "
        "merge true, entries of the same id are updated and new ones are appended. Keep one entry in_progress and "
        "mark entries completed as soon as they are done. The answer is always the whole list."
    ),
    parameters=_object(
        todos={
            "type": "array",
            "description": "The entries to store. Leave it out to read the list.",
            "items": _object(
                ("id",),
                id={"type": ["string", "integer"], "description": "Short name of the entry, unique in the list."},
                content=_text("What is to be done.", minLength=1),
                status=_text("State of the entry.", enum=["pending", "in_progress", "completed", "cancelled"]),
            ),
        },
        merge={"type": "boolean", "default": False, "description": "Update the list instead of replacing it."},
    ),
    needs_sandbox=False,
    side_effects="none",
)

TOOLS: Final[tuple[ToolSpec, ...]] = (
    _TERMINAL,
    _PROCESS,
    _READ_FILE,
    _WRITE_FILE,
    _PATCH,
    _SEARCH_FILES,
    _TODO,
    _TERMINAL_STATEFUL,
    _TMUX,
)
