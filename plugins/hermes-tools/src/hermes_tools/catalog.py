"""Declares the nine tools of this package, without importing their implementations."""

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
        "functions survive. The answer has output (stdout and stderr together), exit_code and error. A command that "
        "takes longer than its timeout is stopped with exit code 124; the session continues. There is no "
        "terminal attached: use non-interactive flags. To read, change or search files, prefer read_file, patch, "
        "write_file and search_files. For a server, a long build or an interactive program, set background to true: "
        "it returns a session_id at once, for the tool process."
    ),
    parameters=_object(
        ("command",),
        command=_text("The command, as you would type it into bash. Several lines are fine.", minLength=1),
        timeout=_integer("Seconds the command may take, at most 600. Leave it out for the default.", minimum=1),
        workdir=_text("Directory to run this one command in; the session's own directory stays.", minLength=1),
        background=_flag(
            "Start the command and return its session_id at once, without waiting. It starts in the session's current "
            "directory with its variables and functions, and does not change the session."
        ),
        pty=_flag(
            "With background: give the program a terminal, for programs that behave differently without one (a Python "
            "prompt, a password question)."
        ),
        check_interval=_integer("With background: seconds between two reports to observers, at least 30.", minimum=1),
        notify_on_complete=_flag("With background: notify observers when it has ended. Replaces watch_patterns."),
        watch_patterns={
            "type": "array",
            "items": _text("Plain text, not a regular expression.", minLength=1),
            "maxItems": 20,
            "description": "With background: notify observers when one of these texts appears in its output.",
        },
    ),
)

_PROCESS: Final = ToolSpec(
    name="process",
    summary="Poll, wait for, write to and kill background processes.",
    target="hermes_tools.processes.process:ProcessTool",
    toolset="terminal",
    description=(
        "Manage the processes that terminal has started with background true. Actions:\n"
        "list: all your processes that run or ended in the last 30 minutes.\n"
        "poll: status, and the output since your last poll.\n"
        "log: lines of the output; the last ones, unless you give offset.\n"
        "wait: wait until it has ended, at most timeout seconds; status 'timeout' means that it still runs.\n"
        "kill: end it and everything it has started.\n"
        "write: send data to its input unchanged. submit: send data and Enter. close: close its input.\n"
        "All actions except list need session_id. To answer a program's question, use submit, then poll. To interrupt "
        "a program that was started with pty, write the character \\u0003. An exit_code of 128+n means that signal n "
        "ended the process."
    ),
    parameters=_object(
        ("action",),
        action=_text("What to do.", enum=["list", "poll", "log", "wait", "kill", "write", "submit", "close"]),
        session_id=_text("The process: the session_id that terminal returned, proc_ and 12 characters."),
        data=_text("Text for write and submit."),
        timeout=_integer("Maximum seconds for wait. Leave it out for the longest time allowed.", minimum=1),
        offset=_integer(
            "For log: number of the first line, counted from 0; a negative number counts from the end. 0 returns the "
            "last lines, unless from_start is true.",
            default=0,
        ),
        limit=_integer("For log: how many lines.", minimum=1, maximum=10_000, default=200),
        from_start=_flag("For log: with offset 0, start at the first line that is kept."),
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
        "Run a bash command in an interactive terminal that is kept between calls, with its variables, its jobs and "
        "running programs. The answer has output, as it would appear on the screen, exit_code and error. A command "
        "that takes longer than its timeout gets C-c; if it still runs after that, exit_code is null, error says so, "
        "and the terminal stays as it is. The tool tmux uses the same terminal: use tmux for programs that ask "
        "questions or fill the screen. While a program runs in the terminal, no other command can be run."
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
        "start: start the terminal, or change its size; with reset true, end the old one first.\n"
        "send_keys: type keys, then return the screen. It starts the terminal if necessary.\n"
        "capture: return the screen; with capture_entire also the lines that have scrolled out of it.\n"
        "stream: return the raw output from cursor on; pass the returned cursor in the next call.\n"
        "stop: end the terminal and everything in it.\n"
        "An answer with a screen has cursor_position (row and column, from 0), and full_screen while a full-screen "
        "program runs."
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
                "S-Up. Everything else is typed literally, including unknown names: ['ls -l', 'Enter']."
            ),
        },
        block=_flag(
            "For send_keys: wait until the shell is back at its prompt, and return completed and the exit_code. Do not "
            "use it for a program that keeps running."
        ),
        min_wait_s=_number("For send_keys: minimum seconds to wait; 0.3 without block.", minimum=0, maximum=600),
        max_wait_s=_number(
            "For send_keys with block: maximum seconds to wait; nothing is interrupted after them.",
            minimum=0,
            maximum=600,
            default=60,
        ),
        capture_entire=_flag("For capture: also the lines above the screen, at most 20,000."),
        cursor=_integer(
            "For stream: the cursor of the last answer; 0 for the oldest output that is kept.", minimum=0, default=0
        ),
        max_bytes=_integer(
            "For stream and capture_entire: maximum bytes to return; the answer tells how many were omitted.",
            minimum=1,
            maximum=200_000,
            default=50_000,
        ),
        reset=_flag("For start: end the present terminal and start a new one."),
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
        "Read a text file. Each line is returned as its number, a bar, and its text; the numbers are not part of the "
        "file. Read long files in parts with offset and limit; truncated tells whether lines follow. If the path does "
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
        "existing file, use patch."
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
        "quotes or escapes are tolerated, and the answer says which. Mode 'patch' takes a patch text for one or more "
        "files; either all of it is applied or nothing. Format:\n"
        "*** Begin Patch\n*** Update File: path\n@@ line above the change, such as a def\n unchanged line\n-old line\n"
        "+new line\n*** Add File: path\n+content\n*** Delete File: path\n*** End Patch\n"
        "'*** Move to: newpath' after an Update File line renames the file. The answer has a unified diff."
    ),
    parameters=_object(
        mode={
            "type": "string",
            "enum": ["replace", "patch"],
            "default": "replace",
            "description": "'replace' needs path, old_string and new_string; 'patch' needs patch.",
        },
        path=_PATH,
        old_string=_text("Text to find, with enough surrounding lines to be unique."),
        new_string=_text("Replacement text; empty to delete."),
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
        "Search below a directory. With target 'content', pattern is a regular expression that is searched in every "
        "text file; with target 'files' it is a glob for names, such as '*.py', or a part of the name. Results are "
        "sorted by path; if truncated is true, continue with offset. Version control directories are skipped."
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
        "Keep a list of the steps of your work. Without todos, the list is only read. With todos, it is replaced; with "
        "merge true, entries with the same id are updated and new ones are appended. Keep one entry in_progress and "
        "mark entries completed as soon as they are done. The answer is always the whole list."
    ),
    parameters=_object(
        todos={
            "type": "array",
            "description": "The entries to store. Leave it out to read the list.",
            "items": _object(
                ("id",),
                id={"type": ["string", "integer"], "description": "Short name of the entry, unique in the list."},
                content=_text("What to do.", minLength=1),
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
