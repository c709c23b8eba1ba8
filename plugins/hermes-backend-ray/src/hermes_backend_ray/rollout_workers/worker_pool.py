"""All workers of a run: start them together, replace lost ones, and choose the worker of each rollout."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from hermes_backend_ray.cluster.nodes import Node
from hermes_backend_ray.rollout_workers.engine_cluster import EngineCluster
from hermes_backend_ray.rollout_workers.engine_options import EngineOptions
from hermes_backend_ray.rollout_workers.worker_link import WorkerLink
from hermes_core.contracts.errors import BackendError, ConfigError, HermesError, UserError

Start = Callable[[str, Node | None], Awaitable[WorkerLink]]
"""Starts a worker of this name, on a node if one is given."""
_REFRESH = 5.0
"""Seconds between checks of the cluster's nodes, because nodes can join."""
_LONGEST_PAUSE = 60.0
_TOLD = 3
"""How many workers an error about closing names at most."""
_TRIES = 3
"""How often the start of a worker that dies while starting is tried."""


class WorkerGoneError(BackendError):
    """A worker died while it was starting."""


class Crew:
    """The workers of a run. Lost ones stay in `links` for the summary; only live ones get rollouts."""

    def __init__(self, cluster: EngineCluster, options: EngineOptions, start: Start) -> None:
        self.links: list[WorkerLink] = []
        self.notes: list[str] = []
        self._cluster = cluster
        self._options = options
        self._start = start
        self._numbers = itertools.count(1)
        self._starting: dict[asyncio.Task[None], str | None] = {}
        self._failed: Counter[str | None] = Counter()
        self._not_before: dict[str | None, float] = {}
        self._changed = asyncio.Condition()
        self._lost = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._end: HermesError | None = None

    @property
    def live(self) -> list[WorkerLink]:
        """The workers that can run rollouts."""
        return [link for link in self.links if link.loss is None]

    async def muster(self) -> None:
        """Start every worker that the options request; raise the error of one that cannot start."""
        targets = await self._missing()
        if not targets:
            raise ConfigError(
                f"engine 'ray': no node of the cluster has what a worker needs: {self._options.needs or 'nothing'}",
                hint="ray status shows the cluster's resources; engine_options: {num_cpus: …, resources: …}",
            )
        tasks = [asyncio.ensure_future(self._first(node)) for node in targets]
        try:
            self.links += [link for link in await asyncio.gather(*tasks) if link is not None]
        except BaseException:
            await self._unmuster(tasks)
            raise

    def tend(self) -> None:
        """Start to listen to the workers and to replace lost ones."""
        for link in self.links:
            link.listen(self._on_loss)
        self._tending = asyncio.create_task(self._tend())

    async def seat(self) -> WorkerLink:
        """Wait for a free slot and take it; raise a fatal error if no worker has been live for too long."""
        async with self._changed:
            while True:
                if self._end is not None:
                    raise self._end
                best = max(self.live, key=lambda link: link.free, default=None)
                if best is not None and best.free > 0:
                    best.taken += 1
                    return best
                await self._changed.wait()

    async def leave(self, link: WorkerLink) -> None:
        """Release a worker's slot."""
        link.taken -= 1
        await self._notify()

    async def close(self) -> None:
        """End all workers.

        Raises:
            BackendError: Some workers could not close their sandboxes or backends.
        """
        tasks = [task for task in (self._tending, *self._starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ends = await asyncio.gather(*(link.close() for link in self.links), return_exceptions=True)
        troubles = [end for end in ends if isinstance(end, Exception)]
        if troubles:
            hints = (getattr(error, "hint", None) for error in troubles)
            told = "; ".join(map(_message_of, troubles[:_TOLD]))
            more = f"; and {len(troubles) - _TOLD} more" if len(troubles) > _TOLD else ""
            raise BackendError(f"{told}{more}", hint=next((hint for hint in hints if hint), None))

    def _name(self) -> str:
        return f"w{next(self._numbers)}"

    async def _first(self, node: Node | None) -> WorkerLink | None:
        """Start a worker; return None if its node has died. Ray learns that late, and still sends workers there."""
        for _ in range(_TRIES - 1):
            try:
                return await self._start(self._name(), node)
            except WorkerGoneError as error:
                self.notes.append(error.message)
            if node is not None and node.id not in {alive.id for alive in await self._cluster.nodes()}:
                return None
        return await self._start(self._name(), node)

    async def _unmuster(self, tasks: Sequence[asyncio.Future[WorkerLink | None]]) -> None:
        for task in tasks:
            task.cancel()
        for started in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(started, WorkerLink):
                started.kill()

    async def _missing(self) -> list[Node | None]:
        """Return the node of each worker that has to be started; None stands for any node."""
        have = Counter([link.place["node"] for link in self.live] + list(self._starting.values()))
        if self._options.workers is not None:
            return [None] * (self._options.workers - have.total())
        nodes = [node for node in await self._cluster.nodes() if not node.lacks(self._options.needs)]
        return [node for node in nodes for _ in range(self._options.per_node - have[node.id])]

    async def _tend(self) -> None:
        loop = asyncio.get_running_loop()
        alone_since: float | None = None
        while self._end is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH):
                    await self._lost.wait()
            self._lost.clear()
            for node in await self._seen_missing():
                self._replace(node, loop.time())
            alone_since = None if self.live else alone_since or loop.time()
            if alone_since is not None and loop.time() - alone_since > self._options.start_timeout:
                await self._give_up()

    async def _seen_missing(self) -> list[Node | None]:
        """Return the missing workers' nodes, or nothing if the cluster does not answer, as when its head is lost."""
        try:
            async with asyncio.timeout(self._options.lost_after):
                return await self._missing()
        except Exception as error:  # noqa: BLE001 - Ray's code, and the run must not wait for workers endlessly
            note = f"the cluster's nodes cannot be listed: {_message_of(error)}"
            if note not in self.notes:
                self.notes.append(note)
            return []

    def _replace(self, node: Node | None, now: float) -> None:
        where = None if node is None else node.id
        if now < self._not_before.get(where, 0.0):
            return
        task = asyncio.create_task(self._restart(node, where))
        self._starting[task] = where
        task.add_done_callback(self._starting.pop)

    async def _restart(self, node: Node | None, where: str | None) -> None:
        try:
            link = await self._start(self._name(), node)
        except Exception as error:  # noqa: BLE001 - Ray's code raises more than its own errors
            self._failed[where] += 1
            pause = min(_LONGEST_PAUSE, 2.0 ** self._failed[where])
            self._not_before[where] = asyncio.get_running_loop().time() + pause
            self.notes.append(f"a worker could not be replaced: {_message_of(error)}")
            return
        self._failed[where] = 0
        link.listen(self._on_loss)
        self.links.append(link)
        await self._notify()

    def _on_loss(self, link: WorkerLink) -> None:
        self.notes.append(f"worker {link.place['worker']} on node {link.place['node'][:12]} was lost: {link.loss}")
        self._lost.set()

    async def _give_up(self) -> None:
        last = self.notes[-1] if self.notes else "none is left"
        self._end = UserError(
            f"engine 'ray': no worker for {self._options.start_timeout:g} s: {last}",
            hint="ray status shows the cluster; the same command continues the run, also with another --engine",
        )
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"


def worker_not_started(options: EngineOptions, reason: str) -> BackendError:
    """Return the error for a worker that did not start in time."""
    needs = ", ".join(f"{amount:g} {name}" for name, amount in options.needs.items()) or "nothing"
    return BackendError(
        f"engine 'ray': a worker did not start within {options.start_timeout:g} s: {reason}; it needs {needs}",
        hint="ray status shows what is free; engine_options: {workers: …, num_cpus: …, start_timeout: …}",
    )
