"""Run a task file: scored rollouts, a summary and a report come out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import hermes_core
from hermes_core.cancellation import run_uncancelled
from hermes_core.cli import one_line, plural
from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import ConfigError, HermesError
from hermes_core.contracts.events import Sink
from hermes_core.contracts.task import Task, TaskProblem
from hermes_core.discovery import PluginState, Registry, load_tasks
from hermes_core.redaction import SecretScrubber
from hermes_core.rollout import RolloutSpec
from hermes_core.specs import Ref
from hermes_runner.config import RunConfig
from hermes_runner.exactness import require_exact, require_exact_run
from hermes_runner.output import REPORT, ROLLOUTS, SUMMARY, OutputFolder, without_samples
from hermes_runner.policy import Policy
from hermes_runner.run.config_redaction import redact_used_settings, secret_texts
from hermes_runner.run.engine_guard import RunEngine
from hermes_runner.run.plan import RunPlan, check_options, choose, names_without_effect, plan_groups, plan_rollouts
from hermes_runner.run.progress import open_progress
from hermes_runner.run.run_folders import choose_folder, discard_empty, link_latest, open_chosen
from hermes_runner.run.scheduling import Recorder, Scheduler
from hermes_runner.run.signal_ends import end_by_signals

# Settings that may differ when an interrupted run continues: its rollouts stay comparable.
_NEUTRAL = frozenset({
    "out", "max_concurrent", "max_sandbox_starts", "tool_pool_size", "api_key_env", "model_timeout", "model_retries",
    "rate_limit_patience", "report", "sinks", "max_attempts", "max_failures", "require_exact", "allow_constrained",
    "allow_unlisted_model", "tasks", "engine", "engine_options",
})  # fmt: skip
_MAX_SKIPPED, _LONGEST = 20, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    `clean` is False when a task could not be run, a rollout was dropped or a sink failed to write one. A failure to
    close something after everything is recorded is only a warning.
    """

    folder: Path
    summary: Mapping[str, Any]
    problems: tuple[TaskProblem, ...]
    clean: bool


class Run:
    """One run: check what can fail early, run the rollouts that are not recorded yet, write the summary."""

    def __init__(
        self,
        config: RunConfig,
        registry: Registry,
        *,
        api_key: str | None = None,
        stream: Any,
        retry_failed: bool = False,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._registry = registry
        self._sinks: dict[str, Sink] = {}
        self._api_key = api_key
        self._stream = stream
        self._retry_failed = retry_failed
        self._on_ready = on_ready
        self._is_folder_new = True  # or was last used by a run that recorded nothing
        self._counts = (0, 0, 0)
        self._engine: RunEngine | None = None
        self._on_turn: Callable[[str], None] = lambda _: None
        self._scrubber = SecretScrubber({*secret_texts(config, registry), api_key or ""})

    async def execute(self) -> RunResult:
        """Execute the run; raises a `HermesError` that names what to change, and keeps everything already recorded."""
        try:
            return await self._execute()
        except HermesError as error:
            self._scrubber.error(error)
            raise

    async def _execute(self) -> RunResult:
        config = self._config
        unused = names_without_effect(config, self._registry)
        check_options(config, self._registry)
        self._create_sinks()
        loaded = load_tasks(Path(config.tasks), self._registry, options=config.options.get("task_source", {}))
        tasks = choose(loaded.tasks, config)
        plan = plan_groups(tasks, config, self._registry)
        plan = RunPlan(groups=plan.groups, problems=(*loaded.problems, *plan.problems))
        if not plan.groups:
            raise ConfigError(f"no task of {config.tasks} can be run: {plan.problems[0].message}")
        folder = self._open_folder(self._fingerprint(tasks))
        self._say("".join(f"{line}\n" for line in unused))
        try:
            return await self._in_folder(folder, plan, tasks)
        finally:
            if self._is_folder_new:
                discard_empty(folder.path)  # before the lock is released, so no other run can take the folder
            folder.close()

    def _open_folder(self, fingerprint: Mapping[str, Any]) -> OutputFolder:
        again = self._retry_failed
        open_at = partial(OutputFolder.open, fingerprint=fingerprint, facts=self._facts(), retry_failed=again)
        if self._config.out is not None:
            self._is_folder_new = not Path(self._config.out).exists()
            return open_at(Path(self._config.out))
        return open_chosen(lambda: choose_folder(fingerprint, self._config.tasks, retry_failed=again), open_at)

    def _tell_where(self, folder: OutputFolder) -> None:
        if self._config.out is not None:
            return
        done = f"continues {folder.path}, which has {plural(len(folder.done), 'rollout')}"
        lines = [done if folder.done else f"writes to {folder.path}", link_latest(folder.path)]
        self._say("".join(f"{line}\n" for line in lines if line))

    def _say(self, text: str) -> None:
        # A stream that cannot be written any more, such as a file on a full disk, must end no run and lose no summary.
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            if self._stream is sys.stderr:  # its buffered text would fail again when the process ends
                with Path(os.devnull).open("w") as nowhere, contextlib.suppress(OSError, ValueError):
                    os.dup2(nowhere.fileno(), sys.stderr.fileno())

    async def _in_folder(self, folder: OutputFolder, plan: RunPlan, tasks: tuple[Task, ...]) -> RunResult:
        config = self._config
        started = time.monotonic()
        async with AsyncExitStack() as stack:
            engine = RunEngine(self._registry, config.engine, config.engine_options, scrubber=self._scrubber)
            stack.push_async_callback(self._close_engine, engine)
            try:
                await engine.open(self._engine_run(folder, tasks))
            finally:
                self._tell_of_leftovers(engine)
            self._engine = engine
            self._tell_where(folder)
            plan = await self._runnable_plan(engine, plan)
            self._tell_of_skipped(plan.skipped)
            specs = list(plan_rollouts(plan.groups, config, folder.run_id, self._provenance(plan)))
            pending = [spec for spec in specs if spec.rollout_id not in folder.done]
            if pending:
                folder.begin()
            recorder = Recorder(folder, self._sinks)
            stack.push_async_callback(self._close_sinks, recorder, folder)
            await recorder.start()
            self._on_ready()
            finish = partial(self._finish, folder, plan, recorder, len(specs), started)
            try:
                await self._run_rollouts(pending, len(specs), engine, recorder, folder)
            except BaseException:
                # The summary is written all the same; the error that stopped the run is the one to raise.
                with contextlib.suppress(HermesError):
                    await finish()
                raise
            result = await finish()
            if config.require_exact:
                require_exact_run(result.summary, allow_constrained=config.allow_constrained)
            return result

    async def _close_engine(self, engine: RunEngine) -> None:
        """Close the engine; a failure is only a warning, because the rollouts are recorded."""
        if (error := await engine.aclose()) is not None:
            self._warn(str(error))

    async def _finish(
        self, folder: OutputFolder, plan: RunPlan, recorder: Recorder, planned: int, started: float
    ) -> RunResult:
        """Write the summary, which counts sink errors up to the last outcome, and hand it to the sinks."""
        seconds = time.monotonic() - started
        try:
            await recorder.drain()
        finally:  # the summary is written even if the wait for a slow sink is cancelled
            sum_up = partial(self._sum_up, folder, plan, recorder, planned, seconds)
            result = await run_uncancelled(asyncio.to_thread(sum_up))
        try:
            await recorder.write_summary(result.summary)
        finally:
            await self._close_sinks(recorder, folder)
        return result

    async def _close_sinks(self, recorder: Recorder, folder: OutputFolder) -> None:
        """Close the sinks, and print each error of the end of the run once."""
        rest = f"every outcome is in {ROLLOUTS}; hermes-core report {folder.path} builds {REPORT} from it"
        try:
            await recorder.close()
        finally:
            while recorder.closing_errors:
                self._warn(f"sink {recorder.closing_errors.pop(0)}; what it writes may lack its end\n  → {rest}")

    def _warn(self, text: str) -> None:
        self._say(f"warning: {self._scrubber.text(text)}\n")

    async def _run_rollouts(
        self, pending: list[RolloutSpec], total: int, engine: RunEngine, recorder: Recorder, folder: OutputFolder
    ) -> None:
        config = self._config
        at_once = engine.concurrency(config.max_concurrent)
        self._tell_of_room(at_once, len(pending))
        with open_progress(total, done=total - len(pending), stream=self._stream) as progress:
            policy = Policy(config.policy, max_attempts=config.max_attempts)
            require = partial(require_exact, allow_constrained=config.allow_constrained)
            judge = require if config.require_exact else None
            tasks = len({spec.group.task.id for spec in pending})
            most = config.max_failures
            scheduler = Scheduler(
                engine.run_rollout, recorder, policy, progress, require=judge, max_failures=most, tasks=tasks
            )
            self._on_turn = progress.turn
            try:
                if folder.done:
                    await asyncio.to_thread(progress.recall, scheduler.recall(folder.outcomes()))
                await scheduler.run(iter(pending), max_concurrent=at_once)
            finally:
                self._counts = (progress.done, total, len(progress.running))

    def account(self) -> str:
        """Return one line about an interrupted run that has cleaned up: how far it got and what it ended."""
        done, total, running = self._counts
        if not total:
            return "no rollout had begun"
        found = {} if self._engine is None else self._engine.provenance
        left, unconfirmed = found.get("sandboxes_left", 0), found.get("unconfirmed", 0)
        sandboxes = ""
        if unconfirmed:
            sandboxes = f", {unconfirmed} of them unconfirmed by the engine (hermes-core sandboxes gc where it runs)"
        elif left:
            sandboxes = f", {left} of its sandboxes left (hermes-core sandboxes gc)"
        elif found.keys() & {"sandboxes_left", "unconfirmed"}:
            sandboxes = ", no sandbox left"
        return f"{done:,} of {plural(total, 'rollout')} recorded, {running:,} in flight ended{sandboxes}"

    def _tell_of_leftovers(self, engine: RunEngine) -> None:
        found = engine.provenance.get("leftovers")
        if found:
            left = f", {found['failed']} left (hermes-core sandboxes gc says why)" if found["failed"] else ""
            self._say(f"sandboxes of processes that have died: {found['removed']} removed{left}\n")

    def _tell_of_skipped(self, skipped: tuple[str, ...]) -> None:
        lines = [f"not offered to the model: {one_line(line, _LONGEST)}" for line in skipped[:_MAX_SKIPPED]]
        if len(skipped) > _MAX_SKIPPED:
            lines.append(f"… {len(skipped) - _MAX_SKIPPED} more in {SUMMARY}")
        self._say("".join(f"{line}\n" for line in lines))

    def _tell_of_room(self, at_once: int, pending: int) -> None:
        config = self._config
        if at_once < min(config.max_concurrent, pending):
            place = f"engine {config.engine!r} with backend {config.terminal_backend!r}"
            wanted = f"max_concurrent is {config.max_concurrent}"
            self._say(f"{plural(at_once, 'rollout')} at a time: {place} has room for no more ({wanted})\n")

    def _engine_run(self, folder: OutputFolder, tasks: tuple[Task, ...]) -> EngineRun:
        return EngineRun(
            run_id=folder.run_id,
            # Sinks and their secrets stay in this process.
            config={**self._config.model_dump(mode="json"), "sinks": []},
            registry=self._registry,
            tasks=tasks,
            api_key=self._api_key,
            max_concurrent=self._config.max_concurrent,
            on_turn=self._count_turn,
        )

    def _count_turn(self, rollout_id: str) -> None:
        self._on_turn(rollout_id)

    async def _runnable_plan(self, engine: RunEngine, plan: RunPlan) -> RunPlan:
        """Ask the engine which tasks it can run; leave out the others, each with its problem."""
        refused = await engine.refusals([group.task for group in plan.groups])
        groups, problems = [], list(plan.problems)
        for group in plan.groups:
            task = group.task
            if (error := refused.get(task.id)) is not None:
                message = self._scrubber.text(str(error))
                problems.append(TaskProblem(source=task.source, task_id=task.id, message=message))
            else:
                groups.append(group)
        if not groups:
            raise ConfigError(f"no task of {self._config.tasks} can be run: {problems[-1].message}")
        return RunPlan(groups=tuple(groups), problems=tuple(problems))

    def _create_sinks(self) -> None:
        """Create the sinks before anything is opened, because those that observe events belong to the registry."""
        for choice in self._config.all_sinks():
            sink = cast("Sink", self._registry.create("sink", choice.name, choice.options))
            self._sinks[choice.name] = sink
            self._registry = self._registry.with_observer(f"sink:{choice.name}", sink)

    def _fingerprint(self, tasks: tuple[Task, ...]) -> dict[str, Any]:
        values = {key: value for key, value in self._redacted_settings().items() if key not in _NEUTRAL}
        digest = hashlib.sha256()
        for task in tasks:
            # The place a task was read from is not part of its content.
            digest.update(repr(dataclasses.replace(task, source="")).encode("utf-8", "replace"))
        return {**values, "tasks_sha256": digest.hexdigest()}

    def _redacted_settings(self) -> dict[str, Any]:
        return redact_used_settings(self._config, self._registry)

    def _facts(self) -> dict[str, Any]:
        return {"tasks": self._config.tasks, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def _provenance(self, plan: RunPlan) -> dict[str, Any]:
        refs = [Ref(kind="backend", name=self._config.terminal_backend), Ref(kind="engine", name=self._config.engine)]
        for group in plan.groups:
            refs += [Ref(kind="tool", name=tool.name) for tool in group.tools.specs]
            refs += [group.task.verifier] if group.task.verifier else []
        unique = {(ref.kind, ref.name): ref for ref in refs}
        plugins = self._registry.provenance(list(unique.values()))
        loaded = [f"{p.id} {p.found.version}" for p in self._registry.plugins if p.state is PluginState.LOADED]
        engine = {"name": self._config.engine}
        return {"hermes_core": hermes_core.__version__, "plugins": plugins, "loaded_plugins": loaded, "engine": engine}

    def _sum_up(
        self, folder: OutputFolder, plan: RunPlan, recorder: Recorder, planned: int, seconds: float
    ) -> RunResult:
        # Not imported before the first model call, which does without them.
        from hermes_runner.report.summary import SummaryBuilder
        from hermes_runner.run.parser_advice import parsers_that_read

        builder = SummaryBuilder()
        for outcome in folder.outcomes():
            builder.add(outcome, earlier=outcome["rollout_id"] in folder.done)
        for line in folder.attempts.lines():
            builder.add_attempt(json.loads(without_samples(line)))
        facts = self._run_facts(folder, plan, recorder, planned, seconds)
        if advised := parsers_that_read(self._registry, builder.unparsed):
            facts["parsers_of_unparsed_replies"] = advised
        summary = builder.build(run=facts)
        folder.write_text(SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        clean = (
            not plan.problems
            and not recorder.sink_errors
            and summary["rollouts"]["total"] >= planned
            and not summary["rollouts"]["disposition"].get("drop", 0)
        )
        return RunResult(folder=folder.path, summary=summary, problems=plan.problems, clean=clean)

    def _run_facts(
        self, folder: OutputFolder, plan: RunPlan, recorder: Recorder, planned: int, seconds: float
    ) -> dict[str, Any]:
        return {
            "run_id": folder.run_id,
            "created": folder.manifest.get("created"),
            "config": self._redacted_settings(),
            "planned": planned,
            "wall_seconds": seconds,
            "group_size": self._config.group_size,
            "problems": [{"source": p.source, "task_id": p.task_id, "message": p.message} for p in plan.problems],
            "skipped_toolsets": list(plan.skipped),
            "engine": {} if self._engine is None else self._engine.provenance,
            "sink_errors": self._sink_errors(recorder),
            "event_problems": self._scrubber.values(
                [dataclasses.asdict(problem) for problem in self._registry.event_problems]
            ),
            "rollouts": str(folder.path / ROLLOUTS),
            "summary": str(folder.path / SUMMARY),
            **({"report": str(folder.path / REPORT)} if "report" in self._sinks else {}),
        }

    def _sink_errors(self, recorder: Recorder) -> dict[str, int]:
        found = Counter[str]()
        for error, times in recorder.sink_errors.items():
            found[self._scrubber.text(error)] += times
        return dict(found)


def execute(
    config: RunConfig,
    registry: Registry,
    *,
    api_key: str | None,
    stream: Any,
    retry_failed: bool = False,
    on_ready: Callable[[], None] = lambda: None,
) -> RunResult:
    """Run to the end on a new event loop; Ctrl-C cancels, cleans up and raises `KeyboardInterrupt`.

    With `retry_failed`, rollouts that were dropped earlier are run again. `on_ready` is called once, when the first
    rollout is about to begin.
    """
    run = Run(config, registry, api_key=api_key, stream=stream, retry_failed=retry_failed, on_ready=on_ready)
    received: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    try:
        return asyncio.run(end_by_signals(run.execute(), received))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(run.account()) from None
    except asyncio.CancelledError:
        first = (received or [signal.SIGTERM])[0]
        if first == signal.SIGINT:
            raise KeyboardInterrupt(run.account()) from None
        _say_last(stream, f"terminated: {run.account()}; the same command continues the run\n")
        raise SystemExit(128 + first) from None
    finally:
        # asyncio.run leaves its own handler if the loop could not end, and a later loop would then set none.
        signal.signal(signal.SIGINT, usual)


def _say_last(stream: Any, text: str) -> None:
    """Write a last line; if the terminal is closed, discard it instead of failing."""
    try:
        stream.write(text)
        stream.flush()
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
