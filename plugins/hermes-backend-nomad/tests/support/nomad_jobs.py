"""The stand-in's jobs, evaluations and allocations, and the life cycle of an allocation."""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
import uuid
from collections.abc import Mapping
from typing import Any

from nomad_containers import Container
from nomad_shapes import EVALUATION, EVENT, JOB, LISTED, METRICS, SINGLE

from hermes_backend_nomad.options import DOCKER_KEYS
from hermes_sandbox.local import ControlGroups

PULL = (
    'Failed to pull `{}`: API error (500): Get "https://registry-1.docker.io/v2/": dial tcp: lookup '
    "registry-1.docker.io on 10.255.255.53:53: no such host"
)
UNKNOWN_KEY = (
    '2 errors occurred:\n\t* failed to parse config: \n\t* Invalid label: No argument or block type is named "{}".\n\n'
)
EXCEEDED = "Exceeded allowed attempts, applying a delay - Task restarting in 56.462999276s"
EVICTED = "alloc is being migrated"
NOT_NEEDED = "alloc not needed due to job update"
LIVE = ("pending", "running")


class Allocation:
    """One allocation and its container."""

    def __init__(self, engine: Engine, job: Job, group: Mapping[str, Any], evaluation: str) -> None:
        self.id = str(uuid.uuid4())
        self.engine = engine
        self.job = job
        self.group = group
        self.task = group["Tasks"][0]
        self.evaluation = evaluation
        self.index = self.modified = engine.next_index()
        self.created = _clock(self.engine)
        self.wanted, self.wanted_why = "run", ""
        self.status, self.status_why = "pending", "No tasks have started"
        self.state, self.has_failed, self.restarts = "pending", False, 0
        self.started: str | None = None
        self.finished: str | None = None
        self.migrates: bool | None = None
        self.events: list[dict[str, Any]] = []
        self.container: Container | None = None
        self.websockets: set[Any] = set()
        self.life = asyncio.ensure_future(self._live())

    def event(self, kind: str, said: str, **fields: Any) -> None:
        self.modified = self.engine.next_index()
        details = {name: str(value) for name, value in fields.pop("details", {}).items()}
        self.events.append(
            {
                **copy.deepcopy(EVENT),
                "Type": kind,
                "DisplayMessage": said,
                "Time": _clock(self.engine),
                "Details": details,
            }
            | fields
        )
        del self.events[:-10]

    def become(self, status: str, why: str, *, state: str, failed: bool = False) -> None:
        self.status, self.status_why, self.state, self.has_failed = status, why, state, failed
        self.modified = self.engine.next_index()
        if status not in LIVE:
            self.finished = _now(self.engine)

    async def _live(self) -> None:
        faults = self.engine.faults
        self.event("Received", "Task received by client")
        self.event("Task Setup", "Building Task Directory", details={"message": "Building Task Directory"})
        await asyncio.sleep(faults.get("start_delay", 0))
        if self._is_refused():
            return
        self.container = Container(self.id, self.task, self.engine.groups)
        await self.container.start()
        self.started = _now(self.engine)
        self.event("Started", "Task started by client")
        self.become("running", "Tasks are running", state="running")
        code = await self.container.ended()
        if self.wanted == "run" and self.status == "running":
            said = f"Docker container exited with non-zero exit code: {code}"
            self.event("Terminated", f'Exit Code: {code}, Exit Message: "{said}"', ExitCode=code, Message=said)
            self._fail("Policy allows no restarts")

    def _is_refused(self) -> bool:
        faults, config = self.engine.faults, self.task["Config"]
        unknown = sorted(set(config) - (DOCKER_KEYS - {faults.get("unknown_key")}))
        if self.task["Driver"] == "docker" and unknown:
            said = UNKNOWN_KEY.format(unknown[0])
            self.event("Failed Validation", said, ValidationError=said, details={"validation_error": said})
            self._fail("Error was unrecoverable")
            return True
        image = config.get("image", "")
        if image in faults.get("missing_images", ()):
            said = PULL.format(image)
            self.event("Driver", "Downloading image", DriverMessage="Downloading image", details={"image": image})
            self.event("Driver Failure", said, DriverError=said, details={"driver_error": said})
            self._fail("Policy allows no restarts")
            return True
        if faults.get("restart_loop"):
            self.restarts = 4
            reason = EXCEEDED.partition(" - ")[0]
            self.event("Restarting", EXCEEDED, RestartReason=reason, details={"restart_reason": reason})
            return True
        return False

    def _fail(self, why: str) -> None:
        details = {"restart_reason": why, "fails_task": "true"}
        self.event("Not Restarting", why, FailsTask=True, RestartReason=why, details=details)
        self.become("failed", "Failed tasks", state="dead", failed=True)

    async def stop(self, why: str, *, status: str = "complete") -> None:
        """End it, as after `stop`, a drain, or the loss of its node."""
        self.wanted, self.wanted_why = "stop", why
        self.event("Killing", "Sent interrupt. Waiting 1s before force killing", KillTimeout=1_000_000_000)
        if self.status in LIVE:
            said = "alloc is lost since its node is down" if status == "lost" else "All tasks have completed"
            self.become(status, said, state="dead")
        await self.remove()

    async def remove(self) -> None:
        """End its processes."""
        self.life.cancel()
        await asyncio.wait((self.life,))
        if self.container is not None:
            container, self.container = self.container, None
            await container.kill()
        self.drop()

    def drop(self) -> None:
        """Break the connections of all that was started in it."""
        for websocket in list(self.websockets):
            transport = websocket._req.transport
            if transport is not None:
                transport.abort()

    def _state(self) -> dict[str, Any]:
        return {
            "State": self.state, "Failed": self.has_failed, "Restarts": self.restarts, "LastRestart": None,
            "StartedAt": self.started, "FinishedAt": self.finished, "Events": copy.deepcopy(self.events),
        }  # fmt: skip

    def _common(self) -> dict[str, Any]:
        return {
            "ID": self.id, "EvalID": self.evaluation, "Name": f"{self.job.id}.{self.group['Name']}[0]",
            "JobID": self.job.id, "TaskGroup": self.group["Name"], "ClientStatus": self.status,
            "ClientDescription": self.status_why, "DesiredStatus": self.wanted,
            "TaskStates": {self.task["Name"]: self._state()}, "CreateIndex": self.index,
            "ModifyIndex": self.modified, "CreateTime": self.created, "ModifyTime": _clock(self.engine),
        }  # fmt: skip

    def _transition(self) -> dict[str, Any]:
        return {"Migrate": self.migrates, "Reschedule": None, "ForceReschedule": None}

    def listed(self) -> dict[str, Any]:
        """Return it as in the list of a job."""
        own = {"DesiredDescription": self.wanted_why, "DesiredTransition": self._transition()}
        return {**copy.deepcopy(LISTED), **self._common(), **own}

    def single(self) -> dict[str, Any]:
        """Return the allocation in the form of a single answer."""
        body = {**copy.deepcopy(SINGLE), **self._common(), "Job": self.job.description}
        if self.wanted_why:
            body["DesiredDescription"] = self.wanted_why
        if self.migrates is not None:
            body["DesiredTransition"] = self._transition()
        # Nomad leaves empty fields out, which the code has to live with.
        return body


class Job:
    """One job."""

    def __init__(self, engine: Engine, description: Mapping[str, Any]) -> None:
        self.engine = engine
        self.id = description["ID"]
        self.created = engine.next_index()
        self.version = -1
        self.description: dict[str, Any] = {}
        self.allocations: list[Allocation] = []
        self.evaluations: list[dict[str, Any]] = []

    @property
    def changed(self) -> int:
        """The index of the last change to its allocations."""
        return max([self.created, *(found.modified for found in self.allocations)])

    def register(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Take a description; return the evaluation."""
        self.version += 1
        modified = self.engine.next_index()
        self.description = {**copy.deepcopy(JOB), **_canonical(given), "Version": self.version}
        self.description |= {"CreateIndex": self.created, "ModifyIndex": modified, "JobModifyIndex": modified}
        self.description |= {"SubmitTime": _clock(self.engine), "Status": "running"}
        return self.evaluate("job-register", modified)

    def evaluate(self, trigger: str, modified: int | None = None) -> dict[str, Any]:
        """Place missing groups and stop removed ones."""
        index = self.engine.next_index()
        base = {name: EVALUATION[name] for name in EVALUATION if name not in {"BlockedEval", "FailedTGAllocs"}}
        evaluation = {
            **copy.deepcopy(base), "ID": str(uuid.uuid4()), "JobID": self.id, "TriggeredBy": trigger,
            "JobModifyIndex": modified or index, "CreateIndex": index, "ModifyIndex": index,
            "CreateTime": _clock(self.engine), "ModifyTime": _clock(self.engine), "QueuedAllocations": {},
        }  # fmt: skip
        groups = {group["Name"]: group for group in self.description["TaskGroups"] or ()}
        for found in self._occupying():
            if found.group["Name"] not in groups:
                self.engine.spawn(found.stop(NOT_NEEDED))
                found.wanted = "stop"
        for name, group in groups.items():
            missing = group["Count"] - sum(found.group["Name"] == name for found in self._occupying())
            reason = self.engine.lacking(group)
            for _ in range(missing):
                if reason is None:
                    self.allocations.append(Allocation(self.engine, self, group, evaluation["ID"]))
                else:
                    evaluation.setdefault("FailedTGAllocs", {})[name] = reason
            evaluation["QueuedAllocations"][name] = 0 if reason is None else missing
        if "FailedTGAllocs" in evaluation:
            self._block(evaluation)
        self.evaluations.append(evaluation)
        return evaluation

    def _block(self, evaluation: dict[str, Any]) -> None:
        kept = ("Namespace", "Priority", "Type", "JobID", "JobModifyIndex", "SnapshotIndex")
        index = self.engine.next_index()
        blocked = {
            **{name: evaluation[name] for name in kept}, "ID": str(uuid.uuid4()), "TriggeredBy": "queued-allocs",
            "Status": "blocked", "StatusDescription": "created to place remaining allocations",
            "PreviousEval": evaluation["ID"], "ClassEligibility": {"v1:1": True}, "CreateIndex": index,
            "ModifyIndex": index, "CreateTime": _clock(self.engine), "ModifyTime": _clock(self.engine),
        }  # fmt: skip
        evaluation["BlockedEval"] = blocked["ID"]
        self.evaluations.append(blocked)

    def _occupying(self) -> list[Allocation]:
        # A failed allocation keeps its place if rescheduling is off.
        return [found for found in self.allocations if found.wanted == "run" and found.status in {*LIVE, "failed"}]

    async def end(self) -> None:
        """Stop all of it."""
        self.description |= {"Stop": True, "Status": "dead"}
        await asyncio.gather(*(found.stop("alloc not needed as job is stopped") for found in self._occupying()))


class Engine:
    """The stand-in's whole state, and the faults to simulate."""

    def __init__(self) -> None:
        self.faults: dict[str, Any] = {}
        self.jobs: dict[str, Job] = {}
        self.groups = ControlGroups()
        self._indices = itertools.count(200)
        self._tasks: set[asyncio.Future[Any]] = set()

    def next_index(self) -> int:
        return next(self._indices)

    def spawn(self, work: Any) -> None:
        """Do something beside."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lacking(self, group: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return why a group fits on no node."""
        wanted = group["Tasks"][0]["Resources"]
        for dimension, name in (("cpu", "CPU"), ("memory", "MemoryMB")):
            if wanted[name] > self.faults.get(f"node_{dimension}", 1_000_000):
                return {**copy.deepcopy(METRICS), "DimensionExhausted": {dimension: 1}}
        return None

    def find(self, allocation_id: str) -> Allocation | None:
        every = (found for job in self.jobs.values() for found in job.allocations)
        return next((found for found in every if found.id == allocation_id), None)

    async def aclose(self) -> None:
        every = [found for job in self.jobs.values() for found in job.allocations]
        await asyncio.gather(*(found.remove() for found in every), *self._tasks)


def _canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    groups = []
    for group in given["TaskGroups"]:
        tasks = [{**copy.deepcopy(JOB["TaskGroups"][0]["Tasks"][0]), **task} for task in group["Tasks"]]
        for task in tasks:
            task["Resources"] = {**JOB["TaskGroups"][0]["Tasks"][0]["Resources"], **task["Resources"]}
        groups.append({**copy.deepcopy(JOB["TaskGroups"][0]), **group, "Tasks": tasks})
    update = {**JOB["Update"], **given.get("Update", {})}
    for group in groups:
        for name in ("RestartPolicy", "ReschedulePolicy", "EphemeralDisk"):
            group[name] = {**JOB["TaskGroups"][0][name], **group[name]}
    return {**given, "TaskGroups": groups, "Update": update}


def _clock(engine: Engine) -> int:
    return time.time_ns() + int(engine.faults.get("skew", 0) * 1_000_000_000)


def _now(engine: Engine) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(_clock(engine) / 1_000_000_000)) + ".930726437Z"
