"""The command `sandboxes`: lists, removes and kills sandboxes, and tries backends."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.contracts.leases import Collected
    from hermes_core.discovery import Registry
    from hermes_sandbox.backend.reclaim import SandboxReclaimer
    from hermes_sandbox.leases.book import Lease, LeaseBook

_BACKEND: Final = ("--terminal-backend", "--backend")
_KEEPS_NONE: Final = "it keeps no leases"


class SandboxesCommand:
    """The command `sandboxes`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subcommands."""
        parser.description = "Manage sandboxes. Only `kill` touches the sandboxes of living processes."
        commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = commands.add_parser("ps", help="list all sandboxes with their owners")
        listing.add_argument(
            "--all", action="store_true", help="also ask every backend for sandboxes that no lease names"
        )
        listing.add_argument(
            *_BACKEND,
            dest="backend",
            metavar="NAME",
            help="only of this backend; with --all, it gets the options",
        )
        collecting = commands.add_parser("gc", help="remove the sandboxes whose owner has died; exit 1 if one remains")
        collecting.add_argument(
            "--all", action="store_true", help="also ask every backend, not only `local`, for sandboxes without a lease"
        )
        collecting.add_argument(
            *_BACKEND,
            dest="backend",
            metavar="NAME",
            help="only of this backend, and ask it for sandboxes without a lease; with --all, it gets the options",
        )
        killing = commands.add_parser("kill", help="kill sandboxes, also of living owners, which get SandboxLostError")
        killing.add_argument("ids", nargs="*", metavar="ID", help="id of a sandbox, or its first characters")
        killing.add_argument("--all", action="store_true", help="all sandboxes")
        killing.add_argument(*_BACKEND, dest="backend", metavar="NAME", help="all sandboxes of this backend")
        probing = commands.add_parser(
            "probe", help="like doctor, but also try every network and limit that a backend declares"
        )
        probing.add_argument("backend", nargs="?", metavar="BACKEND", help="only this backend")
        for command in (listing, collecting, killing, probing):
            command.add_argument(
                "--json", action="store_true", help="print JSON; its shape is stable, the table's is not"
            )
            command.add_argument("--lease-dir", type=Path, metavar="DIR", help="directory of the leases")
            command.add_argument(
                "--backend-options",
                metavar="JSON",
                default="{}",
                help="options that are not in leases, such as secrets, for the named backend or `local`",
            )

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand."""
        from hermes_sandbox.leases.book import LeaseBook, default_lease_dir

        book = LeaseBook(arguments.lease_dir or default_lease_dir())
        actions = {"ps": _list, "gc": _collect, "kill": _kill, "probe": _probe}
        return actions[arguments.action](book, arguments)


def _list(book: LeaseBook, arguments: argparse.Namespace) -> int:
    leases, problems = book.read()
    _require_known_backend(leases, arguments)
    rows = [_row(lease) for lease in leases if arguments.all or _is_chosen(lease, arguments)]
    answer: dict[str, Any] = {"sandboxes": rows, "problems": problems}
    if arguments.all:
        answer["abandoned"] = _find_abandoned(book, arguments, problems)
    else:
        _options_for((), arguments, "ps asks backends only with --all")
    if arguments.json:
        _print_json(answer)
        return 0
    if rows:
        _print_table([("SANDBOX", "BACKEND", "AGE", "ENDS", "ROLLOUT", "OWNER"), *map(_cells, rows)])
    else:
        whose = f" of backend {arguments.backend!r}" if arguments.backend and not arguments.all else ""
        _print(f"no sandboxes{whose} in {book.directory}")
    for found in answer.get("abandoned", ()):
        _print(
            f"{found['sandbox_id']} of backend {found['backend']} has no lease and a dead owner; gc --all removes it"
        )
    _complain(problems)
    return 0


def _require_known_backend(leases: Iterable[Lease], arguments: argparse.Namespace) -> None:
    """Refuse a backend that no lease names and no plugin declares; a lease may be of one that is not installed now."""
    if arguments.backend is not None and all(lease.backend != arguments.backend for lease in leases):
        _registry(arguments).spec("backend", arguments.backend)


def _row(lease: Lease) -> dict[str, Any]:
    # An older release can have written more into it than this one would.
    from hermes_core.redaction import redact

    return {**redact(lease.to_json()), "owner": lease.owner(), "overdue": lease.is_overdue}


def _is_chosen(lease: Lease, arguments: argparse.Namespace) -> bool:
    from hermes_sandbox.commands.backend_options import is_backend

    return arguments.backend is None or is_backend(lease.backend, arguments.backend)


def _find_abandoned(book: LeaseBook, arguments: argparse.Namespace, problems: list[str]) -> list[dict[str, str]]:
    import asyncio

    registry = _registry(arguments)
    asked = _backends_to_ask(registry, arguments)
    options = _options_for(asked, arguments, _KEEPS_NONE)
    found, further = asyncio.run(_collector(book, registry, options).find_abandoned(asked))
    problems += further
    return found


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    import time

    now = time.time()
    owner = f"{row['owner']} (pid {row['owner_pid']} on {row['node']})"
    ends = "overdue" if row["overdue"] else f"in {_age(row['deadline'] - now)}"
    return row["sandbox_id"], row["backend"], _age(now - row["created"]), ends, row["rollout_id"] or "-", owner


def _age(seconds: float) -> str:
    """Return the age in whole units of its largest unit. If the clock was set back, return 0s."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next(
        (f"{int(seconds // size)}{unit}" for unit, size in units if seconds >= size), f"{max(0, int(seconds))}s"
    )


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        _print("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _collect(book: LeaseBook, arguments: argparse.Namespace) -> int:
    import asyncio

    registry = _registry(arguments)
    asked = _backends_to_ask(registry, arguments)
    dead, problems = book.dead()
    dead = [lease for lease in dead if arguments.all or _is_chosen(lease, arguments)]
    options = _options_for({lease.backend for lease in dead}.union(asked), arguments, _KEEPS_NONE)
    done = asyncio.run(_collector(book, registry, options).collect(backends=asked, leases=dead))
    done.problems += problems
    return _tell(done, arguments, f"nothing to remove in {book.directory}")


def _backends_to_ask(registry: Registry, arguments: argparse.Namespace) -> list[str]:
    """Return the backends to ask for sandboxes without a lease, except those that keep no leases."""
    from hermes_sandbox.backend.reclaim import keeps_leases

    if arguments.backend is not None:
        registry.spec("backend", arguments.backend)
    every = registry.names("backend") if arguments.all else [arguments.backend or "local"]
    return [name for name in every if keeps_leases(registry, name)]


def _kill(book: LeaseBook, arguments: argparse.Namespace) -> int:
    import asyncio

    leases, problems = book.read()
    _require_known_backend(leases, arguments)
    chosen = _choose(leases, arguments)
    why = f"no lease in {book.directory} matches"
    options = _options_for({lease.backend for lease in chosen}, arguments, why)
    done = asyncio.run(_collector(book, _registry(arguments), options).remove(chosen))
    done.problems += problems
    return _tell(done, arguments, f"nothing to kill in {book.directory}")


def _choose(leases: list[Lease], arguments: argparse.Namespace) -> list[Lease]:
    from hermes_core.contracts.errors import UserError

    if not (arguments.ids or arguments.all or arguments.backend):
        raise UserError(
            "expected sandboxes to kill, got none", hint="hermes-core sandboxes kill ID…, --backend NAME or --all"
        )
    if arguments.ids:
        leases = [_one(leases, wanted) for wanted in dict.fromkeys(arguments.ids)]
    return [lease for lease in leases if _is_chosen(lease, arguments)]


def _one(leases: Iterable[Lease], wanted: str) -> Lease:
    from hermes_core.contracts.errors import UserError

    found = [lease for lease in leases if lease.sandbox_id.startswith(wanted)]
    if len(found) != 1:
        raise UserError(
            f"{len(found) or 'no'} sandboxes have an id that begins with {wanted!r}", hint="hermes-core sandboxes ps"
        )
    return found[0]


def _tell(done: Collected, arguments: argparse.Namespace, nothing: str) -> int:
    if arguments.json:
        _print_json({"removed": done.removed, "failed": done.failed, "problems": done.problems})
        return 1 if done.failed else 0
    for sandbox_id in done.removed:
        _print(f"removed {sandbox_id}")
    for sandbox_id, message in done.failed.items():
        sys.stderr.write(f"{sandbox_id} remains: {message}\n")
    if not done.removed and not done.failed:
        _print(nothing)
    _complain(done.problems)
    return 1 if done.failed else 0


def _probe(_: LeaseBook, arguments: argparse.Namespace) -> int:
    """Try all backends or one. Return 1 if the named backend works at none of its levels."""
    from hermes_sandbox.commands.backend_options import options_of_named
    from hermes_sandbox.commands.examination import Examination
    from hermes_sandbox.commands.report_printer import ReportPrinter

    chosen = options_of_named(arguments, "sandboxes probe")
    examination = Examination(
        registry=_registry(arguments), chosen=chosen, in_detail=True, lease_dir=arguments.lease_dir
    )
    reports = examination.report(ReportPrinter(io.StringIO() if arguments.json else sys.stdout, in_detail=True))
    if arguments.json:
        _print_json({"backends": [report.to_json(in_detail=True) for report in reports]})
    return 1 if chosen and not reports[0].works else 0


def _registry(arguments: argparse.Namespace) -> Registry:
    from hermes_core.discovery import load_plugins

    return load_plugins(getattr(arguments, "plugin_settings", None))


def _collector(book: LeaseBook, registry: Registry, options: Mapping[str, Mapping[str, Any]]) -> SandboxReclaimer:
    from hermes_sandbox.backend.reclaim import SandboxReclaimer

    return SandboxReclaimer(book, registry, options)


def _options_for(asked: Collection[str], arguments: argparse.Namespace, why: str) -> dict[str, dict[str, Any]]:
    from hermes_sandbox.commands.backend_options import options_by_backend

    return options_by_backend(arguments, asked, why)


def _complain(problems: Iterable[str]) -> None:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _print_json(value: Any) -> None:
    import json

    _print(json.dumps(value, indent=2))
