"""Generates a run for tests and for a look at its report: 24 tasks of eight or nine rollouts, with every stop reason.

`python sample_run.py DIR` writes DIR/rollouts.jsonl, DIR/summary.json and DIR/report.html.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = """
    count-errors-in-log rename-photos-by-date fix-failing-unit-test merge-two-csv-files
    git-bisect-regression sqlite-monthly-report extract-nested-archive repair-file-permissions
    serve-static-page dedupe-mail-addresses parse-apache-access-log rewrite-git-author
    convert-json-to-yaml find-largest-directories patch-config-file compile-c-program
    schedule-cron-entry rotate-log-files sum-column-with-awk debug-import-cycle
    restore-deleted-branch encode-base64-chunks watch-a-port normalise-line-endings
"""
TASKS = tuple(NAMES.split())
CATEGORIES = ("files", "text", "git", "python")
RUN = {
    "tasks": "examples/terminal_tasks.jsonl",
    "model": "oracle",
    "model_name": "oracle (mistakes 0.25)",
    "terminal_backend": "local",
    "isolation": "bwrap",
    "network": "none",
    "group_size": 8,
    "seed": 7,
    "started_at": "2026-03-02T10:15:04+00:00",
    "wall_seconds": 96.4,
    "versions": {"hermes-agent-core": "0.1.0", "python": "3.12.4"},
    "config": {"max_agent_turns": 12, "agent_temperature": 1.0, "policy": {"model_error": "retry"}},
}
LIMITS = ["max_turns", "max_turns", "time_limit", "context_limit", "tool_call_limit"]
ENDINGS = ["final_answer"] * 14 + [*LIMITS, "model_error", "tool_backend_error", "task_error"]
FAILURES = {
    "model_error": (
        "model",
        "ModelServerError",
        "HTTP 503 from http://127.0.0.1:8000/v1\n  → see the log of the server",
    ),
    "tool_backend_error": ("backend", "SandboxLostError", "the sandbox's agent went away (exit code 137)"),
    "task_error": ("task", "TaskError", "setup command 2 failed with exit code 1: tar: fixtures.tar: Cannot open"),
}
SLOW = {"blame": "verifier", "type": "VerifierError", "message": "the verifier took longer than 60 s"}


def outcomes(count: int = 200, seed: int = 7) -> Iterator[dict[str, Any]]:
    dice = random.Random(seed)
    for number in range(count):
        yield outcome(dice, TASKS[number % len(TASKS)], number // len(TASKS))


def outcome(dice: random.Random, task: str, index: int) -> dict[str, Any]:
    stop = dice.choice(ENDINGS)
    failure = FAILURES.get(stop)
    failed = failure and dict(zip(("blame", "type", "message"), failure, strict=True))
    turns = dice.randint(1, 9)
    messages, errors = conversation(dice, task, turns, finished=stop == "final_answer")
    verifier_broke = failure is None and dice.random() < 0.04
    scored = failure is None and not verifier_broke
    parts = {"exit_code": float(dice.random() < 0.75), "content": dice.choice([0.0, 0.5, 0.75, 1.0, 1.0]), "style": 1.0}
    reward = round(0.6 * parts["exit_code"] + 0.3 * parts["content"] + 0.1 * parts["style"], 4)
    times = {
        "model": turns * dice.uniform(0.4, 1.3), "tool": turns * dice.uniform(0.05, 0.7),
        "sandbox_start": dice.uniform(0.08, 0.3), "verifier": dice.uniform(0.1, 0.9), "framework": turns * 0.004,
    }  # fmt: skip
    return {
        "rollout_id": f"{task}-{index:02d}",
        "task_id": task,
        "group_id": f"{task}-g0",
        "index": index,
        "split": "train",
        "seed": dice.randrange(1 << 31),
        "messages": messages,
        "turns": turns,
        "stop_reason": stop,
        "reward_status": "ok" if scored else ("error" if verifier_broke else "skipped"),
        "reward": reward if scored else None,
        "reward_parts": parts if scored else {},
        "reward_detail": "2 of 2 files as expected" if reward == 1 else "line 3: expected 'b,2', found 'b,3'",
        "final_response": messages[-1]["content"] or "" if stop == "final_answer" else "",
        "failure": failed,
        "reward_failure": SLOW if verifier_broke else None,
        "tool_errors": errors,
        "counters": {
            "prompt_tokens": turns * 900, "completion_tokens": turns * 120,
            "tool_calls_attempted": turns, "tool_errors": len(errors),
        },
        "timings": {"total": sum(times.values()), **times},
        "provenance": {
            "backend": "local", "isolation": "bwrap", "model": {"name": "oracle", "protocol": "embedded"},
            "metadata": {"category": CATEGORIES[TASKS.index(task) % 4]},
            "plugins": [{"name": "core", "version": "0.1.0"}],
        },
        "attempt": 2 if dice.random() < 0.05 else 1,
        "disposition": "drop" if failure else ("mask" if stop == "context_limit" else "score"),
    }  # fmt: skip


Messages = list[dict[str, Any]]


def conversation(dice: random.Random, task: str, turns: int, *, finished: bool) -> tuple[Messages, Messages]:
    system = "You work in a Linux sandbox. Use the tools to do what the user asks, then say what you did. " * 6
    prompt = (
        f"In the workspace there is what you need for “{task}”.\nWrite the result to ./answer.txt, one item a line."
    )
    messages: Messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    errors: Messages = []
    for turn in range(1, turns + (not finished)):
        name, arguments, content, error = step(dice)
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": arguments}}
        said = "First I look at what is there." if turn == 1 else None
        message = {"role": "assistant", "content": said, "tool_calls": [call]}
        if turn % 3 == 1:
            message["reasoning_content"] = "The log has two formats; I had better check both before I count.\nThen awk."
        messages += [message, {"role": "tool", "tool_call_id": f"call_{turn}", "content": content}]
        if error:
            texts = {"arguments": arguments[:200], "error": error, "tool_result": content[:300]}
            errors.append({"turn": turn, "tool_name": name, **texts})
    if finished:
        messages.append({"role": "assistant", "content": "Done: answer.txt holds the items, sorted, one a line."})
    return messages, errors


def step(dice: random.Random) -> tuple[str, str, str, str | None]:
    kind = dice.random()
    if kind < 0.08:
        problem = "there is no tool `bash`; the tools are: terminal, read_file, write_file, patch, search_files"
        return "bash", '{"cmd": "ls"}', json.dumps({"error": problem}), problem
    if kind < 0.14:
        problem = "the arguments are no JSON: Expecting ',' delimiter at column 19"
        return "terminal", '{"command": "ls -l"', json.dumps({"error": problem}), problem
    if kind < 0.5:
        sizes = [dice.randint(90, 99999) for _ in range(dice.randint(3, 60))]
        listing = "\n".join(f"-rw-r--r-- 1 agent agent {size:>6} part-{n:03d}.log" for n, size in enumerate(sizes))
        arguments = {"command": "cd data && ls -l\nfor f in *.log; do\n  grep -c ' ERROR ' \"$f\"\ndone | sort -n"}
        return "terminal", json.dumps(arguments), json.dumps({"output": listing, "exit_code": 0, "error": None}), None
    if kind < 0.75:
        text = "1|# Notes\n2|<b>not bold</b>\n3|Ünïcödé 漢字 ✓"
        arguments = {"path": "data/notes.md", "offset": 1, "limit": 40}
        return "read_file", json.dumps(arguments), json.dumps({"content": text, "total_lines": 3}), None
    arguments = {"path": "answer.txt", "content": "a,1\nb,2\nc,3\n"}
    return "write_file", json.dumps(arguments), json.dumps({"success": True, "bytes_written": 12}), None


def main(directory: Path) -> None:
    from hermes_runner.report.rebuild import rebuild, write_summary
    from hermes_runner.report.summary import SummaryBuilder

    directory.mkdir(parents=True, exist_ok=True)
    builder = SummaryBuilder()
    with (directory / "rollouts.jsonl").open("w", encoding="utf-8") as out:
        for line in outcomes():
            builder.add(line)
            out.write(json.dumps(line) + "\n")
    write_summary(directory / "summary.json", builder.build(run=RUN))
    rebuild(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
