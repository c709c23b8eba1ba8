"""Removes sandboxes from outside, by their leases: those of dead owners, and those that a user names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from hermes_core.contracts.errors import BackendError, HermesError
from hermes_core.contracts.leases import Collected, LeasingBackend
from hermes_core.discovery import scrubber_for
from hermes_core.rollout import guard_plugin_call
from hermes_sandbox.leases.book import Lease, LeaseBook
from hermes_sandbox.leases.machine_identity import MachineIdentity

if TYPE_CHECKING:
    from hermes_core.discovery import Registry
    from hermes_core.specs import BackendSpec

_AT_ONCE: Final = 8
_LEASING: Final = ("lease_with", "reclaim", "sweep")
"""The additional methods of a backend with leases."""


class SandboxReclaimer:
    """Removes sandboxes of any installed backend.

    Several may work on one book at the same time: each lease is handled by one of them. The caller adds `options`
    to those in the leases of a backend, by its name, such as secrets, which are never written.
    """

    def __init__(
        self, book: LeaseBook, registry: Registry, options: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._book = book
        self._registry = registry
        self._options = dict(options or {})

    async def collect(
        self, *, backends: Iterable[str] = ("local",), leases: Iterable[Lease] | None = None
    ) -> Collected:
        """Remove sandboxes of dead owners: those of `leases`, all if None, and those that `backends` find by marks."""
        problems: list[str] = []
        if leases is None:
            leases, problems = self._book.dead()
        done = await self.remove(leases)
        done.problems += problems
        for name in backends:
            await self._sweep(name, done)
        return done

    async def remove(self, leases: Iterable[Lease]) -> Collected:
        """Remove sandboxes of any owner. Skip those that another process is removing now."""
        done = Collected()
        room = asyncio.Semaphore(_AT_ONCE)

        async def remove(lease: Lease) -> None:
            async with room:
                try:
                    with self._book.claim(lease.sandbox_id) as claimed:
                        if claimed:
                            await self._remove(lease, done)
                except OSError as error:  # one lease that cannot be opened must not block the others
                    done.failed[lease.sandbox_id] = f"its lease cannot be opened: {error.strerror}"

        await asyncio.gather(*map(remove, leases))
        return done

    async def find_abandoned(self, backends: Iterable[str]) -> tuple[list[dict[str, str]], list[str]]:
        """List sandboxes of dead owners without a lease, and why a backend could not be asked."""
        known = {lease.sandbox_id for lease in self._book.read()[0]}
        found, problems = [], []
        for name in backends:
            try:
                ids = await self._ask(name, remove=False)
            except HermesError as error:
                problems.append(self._without_secrets(name, f"backend {name!r} cannot be asked: {error}"))
                continue
            except Exception as error:  # noqa: BLE001 - the plugin boundary, as below
                problems.append(self._without_secrets(name, _defect(name, error)))
                continue
            found += [{"sandbox_id": found_id, "backend": name} for found_id in ids if found_id not in known]
        return found, problems

    async def _remove(self, lease: Lease, done: Collected) -> None:
        try:
            backend = self._make(lease.backend, lease.options)
            try:
                _require_leases(backend, lease.backend)
                _require_reach(cast("BackendSpec", self._registry.spec("backend", lease.backend)), lease)
                await guard_plugin_call(backend.reclaim(lease.handle))
            finally:
                await guard_plugin_call(backend.aclose())
        except (HermesError, OSError) as error:
            done.failed[lease.sandbox_id] = self._without_secrets(lease.backend, _explain(error, lease))
        except KeyError as error:
            done.failed[lease.sandbox_id] = f"its lease is damaged: the handle lacks {error}"
        except Exception as error:  # noqa: BLE001 - the plugin boundary: one backend's error must not stop the others
            done.failed[lease.sandbox_id] = self._without_secrets(lease.backend, _defect(lease.backend, error))
        else:
            self._book.remove(lease.sandbox_id)
            done.removed.append(lease.sandbox_id)

    async def _sweep(self, name: str, done: Collected) -> None:
        try:
            done.removed += [found for found in await self._ask(name, remove=True) if found not in done.removed]
        except HermesError as error:
            done.problems.append(self._without_secrets(name, f"backend {name!r} cannot be asked: {error}"))
        except Exception as error:  # noqa: BLE001 - the plugin boundary, as above
            done.problems.append(self._without_secrets(name, _defect(name, error)))

    async def _ask(self, name: str, *, remove: bool) -> list[str]:
        backend = self._make(name, {})
        try:
            # A factory does not tell what it builds: a backend without leases has left nothing that could be found.
            return await guard_plugin_call(backend.sweep(remove=remove)) if isinstance(backend, LeasingBackend) else []
        finally:
            await guard_plugin_call(backend.aclose())

    def _without_secrets(self, name: str, text: str) -> str:
        return scrubber_for(self._registry, "backend", name, self._options.get(name, {})).text(text)

    def _make(self, name: str, options: Mapping[str, Any]) -> Any:
        return self._registry.create("backend", name, {**options, **self._options.get(name, {})})


def keeps_leases(registry: Registry, name: str) -> bool:
    """Tell whether a backend keeps leases, without building it; True if that is unknown."""
    try:
        target = registry.load("backend", name)
    except HermesError:
        return True  # its error is reported when it is asked
    wanted = (getattr(target, method, None) for method in _LEASING)
    return not isinstance(target, type) or all(map(callable, wanted))


def _require_leases(backend: object, name: str) -> None:
    if not isinstance(backend, LeasingBackend):
        raise BackendError(f"backend {name!r} keeps no leases, and cannot remove leftovers")


def _require_reach(declared: BackendSpec, lease: Lease) -> None:
    if lease.owner() != "elsewhere" or declared.is_remote or declared.images:
        return
    if lease.is_overdue and lease.node == MachineIdentity.now().node:
        return  # its deadline is not moved any more: this machine was restarted, and nothing proves that
    raise BackendError(
        f"it belongs to process {lease.owner_pid} of machine {lease.node}, not of this machine, boot or namespace",
        hint="call hermes-core there; if this machine was restarted since, wait for its deadline",
    )


def _defect(name: str, error: Exception) -> str:
    return f"backend {name!r} raised {type(error).__name__}: {error}"


def _explain(error: Exception, lease: Lease) -> str:
    text = str(error)
    if lease.withheld:
        text += (
            f"\n  → secrets are not in leases; this one was made with {', '.join(lease.withheld)}: "
            f"--backend {lease.backend} --backend-options JSON"
        )
    return text
