"""Prints the summary at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, OverflowMethod
from rich.table import Table
from rich.text import Text

from hermes_core.cli import one_line, plural
from hermes_runner.report.summary_engine import engine_facts

_MAX_FAILURES = 5
_MAX_NAMES = 8
_MAX_PROBLEMS = 5
_NOTHING = "-"
_MIN_NAME = 16
_EXPENDABLE = ("std", "errors", "turns", "pass@1", "scored")
"""Columns that are hidden on a narrow terminal, in this order."""

_SHARES: Final = (
    ("sampled_trained_share", "trained"),
    ("turns_with_loss_share", "turns"),
    ("prefix_exact_share", "prefix"),
    ("template_parity", "template"),
    ("logprob_coverage", "logprobs"),
)


def render_summary(
    summary: Mapping[str, Any], console: Console, *, paths: Sequence[str] | None = None, max_tasks: int = 30
) -> None:
    """Print table, facts, failures and paths; fits 80 columns.

    `paths` are the files that were written, by default those the run's facts name.
    """
    rows = summary["tasks"]
    table, hidden = _task_table(summary, rows[:max_tasks], console)
    console.print(table)
    if hidden:
        console.print(_text(f"no room for: {', '.join(hidden)}", console), style="dim")
    if len(rows) > max_tasks:
        more = plural(len(rows) - max_tasks, "more task")
        console.print(_text(f"{more} in summary.json", console, "… "), style="dim")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(summary):
        facts.add_row(name, _text(value, console))
    console.print(facts)
    _print_failures(summary, console)
    for path in _paths(summary) if paths is None else paths:
        console.print(_text(path, console, limit=1000), soft_wrap=True, style="cyan", highlight=False)


def _paths(summary: Mapping[str, Any]) -> list[str]:
    return [str(path) for name in ("rollouts", "summary", "report") if (path := summary["run"].get(name))]


def _print_failures(summary: Mapping[str, Any], console: Console) -> None:
    groups, more = summary["failures"], summary["more_failures"]
    for group in groups[:_MAX_FAILURES]:
        console.print(_failure(group, console))
    if len(groups) > _MAX_FAILURES:
        text = f"{plural(len(groups) - _MAX_FAILURES, 'more kind')} in summary.json"
        console.print(_text(text, console, "… "), style="dim")
    if more["kinds"]:
        text = f"{plural(more['kinds'], 'more kind')} ({plural(more['count'], 'failure')}) in rollouts.jsonl"
        console.print(_text(text, console, "… "), style="dim")


def _task_table(
    summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], console: Console
) -> tuple[Table, list[str]]:
    """Return the table and the names of the columns it has no room for."""
    k = _largest_k(summary)
    columns, cells = list(_columns(summary, k)), [_cells(row, k) for row in rows]
    all_tasks = f"all {plural(len(summary['tasks']), 'task')}"
    names = [all_tasks, *(_plain(row["task_id"], console, _MIN_NAME) for row in rows)]
    widths = {column[0]: max(map(len, (*column, *at))) for column, *at in zip(columns, *cells, strict=True)}
    hidden = _columns_to_hide(widths, console.width - min(_MIN_NAME, max(map(len, names))))
    shown = [at for at, (name, _) in enumerate(columns) if name not in hidden]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.show_footer, table.footer_style = True, "bold"
    # Some encodings lack the ellipsis.
    overflow: OverflowMethod = "ellipsis" if console.encoding.startswith("utf") else "crop"
    # Only names may be cut, never numbers.
    room = max(8, console.width - sum(widths[columns[at][0]] + 2 for at in shown))
    table.add_column("task", all_tasks, overflow=overflow, no_wrap=True, max_width=room)
    for at in shown:
        table.add_column(*columns[at], justify="right", no_wrap=True)
    for row, numbers in zip(rows, cells, strict=True):
        never_passed = row["pass@1"] == 0
        table.add_row(
            _text(row["task_id"], console), *(numbers[at] for at in shown), style="yellow" if never_passed else ""
        )
    return table, hidden


def _columns_to_hide(widths: Mapping[str, int], room: int) -> list[str]:
    """Choose the columns to leave out so that the others fit into `room` whole."""
    hidden: list[str] = []
    for name in _EXPENDABLE:
        if sum(width + 2 for column, width in widths.items() if column not in hidden) <= room:
            break
        hidden += [name] if name in widths else []
    return hidden


def _cells(row: Mapping[str, Any], k: str | None) -> list[str]:
    cells = [f"{row['n']}/{row['rollouts']}", _number(row["mean_reward"]), _number(row["std_reward"])]
    cells.append(_percent(row["pass@1"]))
    if k is not None:
        cells.append(_percent(row["pass@k"].get(k)))
    return [*cells, _number(row["mean_turns"], 1), str(row["tool_errors"])]


def _columns(summary: Mapping[str, Any], k: str | None) -> Iterable[tuple[str, str]]:
    rollouts, reward, passes = summary["rollouts"], summary["reward"], summary["pass"]
    yield "scored", f"{rollouts['scored']}/{rollouts['total']}"
    yield "mean", _number(reward["mean_over_tasks"])
    yield "std", _number(reward["std_over_rollouts"])
    yield "pass@1", _percent(passes["pass@1_over_tasks"])
    if k is not None:
        yield f"pass@{k}", _percent(passes["pass@k"][k]["mean_over_tasks"])
    yield "turns", _number(summary["turns"]["mean"], 1)
    yield "errors", str(summary["tool_errors"]["total"])


def _largest_k(summary: Mapping[str, Any]) -> str | None:
    ks = [k for k in summary["pass"]["pass@k"] if int(k) > 1]
    return ks[-1] if ks else None


def _facts(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    reward, rollouts, speed = summary["reward"], summary["rollouts"], summary["speed"]
    over_tasks, over_rollouts = _number(reward["mean_over_tasks"]), _number(reward["mean_over_rollouts"])
    yield "mean reward", f"{over_tasks} over tasks, {over_rollouts} over rollouts"
    yield from _exclusions(rollouts)
    yield from _second_tries(summary)
    planned = int(summary["run"].get("planned") or 0)
    if planned > rollouts["total"]:
        yield "missing", f"{planned - rollouts['total']} of {plural(planned, 'planned rollout')}"
    if problems := summary["run"].get("problems"):
        yield "not run", f"{plural(len(problems), 'task')}, for example: {_problem(problems[0])}"
    if skipped := summary["run"].get("skipped_toolsets"):
        yield "not offered", skipped[0] + (f"; {len(skipped) - 1} more in summary.json" if skipped[1:] else "")
    yield from _trouble(summary["run"])
    yield "pass@k", _passes(summary)
    yield "stop reasons", _names(rollouts["stop_reason"])
    yield from _bad_replies(summary)
    if recovered := summary["counters"].get("sandbox_recoveries"):
        yield "recovered", f"{plural(recovered, 'call')} lost with a sandbox that was restarted; the rollouts continued"
    if summary["tool_errors"]["total"]:
        yield "tool errors", _names(summary["tool_errors"]["by_tool"])
    yield "time", _time(summary["time"])
    tokens = summary["tokens"]
    if tokens["prompt"] or tokens["completion"]:
        yield "tokens", f"{tokens['prompt']:,} prompt, {tokens['completion']:,} completion"
    yield from _exactness(summary.get("exactness"))
    yield from engine_facts(summary["run"], rollouts.get("engine") or {})
    if speed.get("wall_seconds"):
        per_second = f"{_number(speed['turns_per_second'], 1)} turns/s, {_number(speed['rollouts_per_second'], 2)}"
        yield "wall time", f"{speed['wall_seconds']:,.1f} s, {per_second} rollouts/s"


def _bad_replies(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if unreadable := summary["counters"].get("tool_parse_errors"):
        yield "unreadable", f"{plural(unreadable, 'tool call')} could not be read; the model was told why"
    if truncated := summary["counters"].get("truncated_replies"):
        were = "replies were" if truncated > 1 else "reply was"
        yield "truncated", f"{truncated} {were} cut off at the token limit in a tool call: --max-tokens N allows more"
    if unparsed := summary["counters"].get("unparsed_replies"):
        parsers = summary["run"].get("parsers_of_unparsed_replies") or ["NAME"]
        others = f" (or {', '.join(parsers[1:])})" if parsers[1:] else ""
        looks = "replies look like" if unparsed > 1 else "reply looks like"
        yield "unparsed", f"{unparsed} {looks} raw tool calls, and no parser was chosen: --parser {parsers[0]}{others}"
    if empty := summary["counters"].get("empty_replies"):
        yield "empty", f"{plural(empty, 'rollout')} ended with a reply without text or calls"


def _constrained_row(tokens: int) -> str:
    if tokens == 1:
        return "1 sampled token was drawn under a mask; its sample is marked"
    return f"{tokens:,} sampled tokens were drawn under a mask; their samples are marked"


def _exactness(report: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    """Yield how exact the samples are, and what happened to sampled tokens that are not trained on."""
    if report is None:
        return
    shares = [f"{words} {_exact(report[key])}" for key, words in _SHARES if report[key] is not None]
    breaks = _names(report["break_reasons"]) if report["break_reasons"] else "none"
    samples = f"{_number(report['samples_per_rollout'], 2)} samples/rollout, breaks: {breaks}"
    yield "exactness", f"{', '.join(shares)}; {samples}" if shares else "no rollout has tokens to train on"
    if report["foreign_control_tokens"]:
        yield "injected", f"{plural(report['foreign_control_tokens'], 'control token')} came from untrusted text"
    if constrained := report.get("constrained_tokens"):  # not in summaries of older versions
        yield "constrained", _constrained_row(constrained)
    if report["not_trained"]:
        yield "not trained", f"sampled tokens of unused rollouts: {_names(report['not_trained'])}"
    for rollout in report["not_exact"][:_MAX_PROBLEMS]:
        yield "not exact", f"{rollout['rollout_id']}: {rollout['fault']}"


def _exact(share: float) -> str:
    """Format a share; one below 1 is never rounded up to 1."""
    return "1.000" if share == 1 else f"{min(share, 0.9999):.4f}"


def _exclusions(rollouts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    total = plural(rollouts["total"], "rollout")
    if dropped := rollouts["dropped"]:
        yield "dropped", f"{dropped} of {total}, excluded from means: {_names(rollouts['drop_causes'])}"
    if without := rollouts["no_reward"]:
        verbs = "has no reward and is" if without == 1 else "have no reward and are"
        yield "no reward", f"{without} of {total} {verbs} excluded from means; a task without a verifier gives none"
    if masked := rollouts["masked"]:
        yield "masked", f"{masked} of {total}: in the means, but not trained on"


def _second_tries(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield what ran or was judged more than once; summaries of older versions lack all of it."""
    rollouts, verification = summary["rollouts"], summary.get("verification") or {}
    if retries := rollouts.get("retries"):
        were = "attempts were" if retries > 1 else "attempt was"
        yield "retries", f"{retries} {were} repeated: {_names(rollouts['retry_causes'])}"
    if controls := verification.get("controls"):
        yield "controls", f"for {plural(controls, 'rollout')} an untouched sandbox of the task was judged too"
    if timeouts := verification.get("timeouts"):
        have, of = ("have", "their verifiers") if timeouts > 1 else ("has", "its verifier")
        yield "timeouts", f"{plural(timeouts, 'rollout')} {have} no reward because {of} took too long"


def _trouble(run: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the errors of plugins and sinks, which are in no rollout's record."""
    events, sinks = run.get("event_problems") or (), run.get("sink_errors") or {}
    yield from (("plugin error", _event(event)) for event in events[:_MAX_PROBLEMS])
    if len(events) > _MAX_PROBLEMS:
        yield "plugin errors", f"{len(events) - _MAX_PROBLEMS} more in summary.json"
    yield from (("sink error", f"{count} x {message}") for message, count in list(sinks.items())[:_MAX_PROBLEMS])
    if len(sinks) > _MAX_PROBLEMS:
        yield "sink errors", f"{len(sinks) - _MAX_PROBLEMS} more in summary.json"


def _event(event: Mapping[str, Any]) -> str:
    where = f"{event.get('plugin')}, {event.get('hook')} ({event.get('kind')})"
    return f"{event.get('count')} x {where}: {event.get('message')}"


def _passes(summary: Mapping[str, Any]) -> str:
    """List pass@k, with the number of tasks if it is not known for all of them."""
    tasks = len(summary["tasks"])
    words = []
    for k, value in summary["pass"]["pass@k"].items():
        some = "" if value["tasks"] == tasks else f" (of {plural(value['tasks'], 'task')})"
        words.append(f"pass@{k} {_percent(value['mean_over_tasks'])}{some}")
    return ", ".join(words) or _NOTHING


def _problem(problem: Mapping[str, Any]) -> str:
    return f"{problem.get('task_id') or problem.get('source')}: {problem.get('message')}"


def _time(time: Mapping[str, Any]) -> str:
    shares = [(name.replace("_", " "), share) for name, share in time["shares"].items() if share is not None]
    return ", ".join(f"{name} {share:.0%}" for name, share in shares) or _NOTHING


def _names(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:_MAX_NAMES]]
    more = len(counts) - _MAX_NAMES
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown) or _NOTHING


def _failure(failure: Mapping[str, Any], console: Console) -> Text:
    text = Text.assemble((f"{failure['count']} x ", "bold"), (_plain(failure["type"], console, 60), "red"))
    what = "no reward" if failure["phase"] == "reward" else "rollout"
    text.append(f" ({what}, {_plain(failure['blame'], console, 20)}) ")
    return text.append(_plain(failure["message"], console, 200), "dim")


def _text(value: str, console: Console, prefix: str = "", limit: int = 400) -> Text:
    """Wrap untrusted text, so that rich interprets no markup in it."""
    return Text(_plain(prefix + value, console, limit))


def _plain(value: object, console: Console, limit: int) -> str:
    return one_line(value, limit, encoding=console.encoding)


def _number(value: float | None, digits: int = 3) -> str:
    return _NOTHING if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.0%}"
