"""`hermes-core sandboxes`: list what is leased, remove what killed processes left behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.sandbox.leases import Lease, LeaseBook


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    parser.description = "Look after sandboxes. What belongs to a living process is never touched."
    commands = parser.add_subparsers(dest="action", required=True, metavar="ps|gc")
    listing = commands.add_parser("ps", help="every sandbox with its owner")
    collecting = commands.add_parser("gc", help="remove the sandboxes whose owner has died; exit 1 if one is left")
    for command in (listing, collecting):
        command.add_argument("--json", action="store_true", help="print JSON; its shape is stable, the table's is not")
        command.add_argument("--lease-dir", type=Path, metavar="DIR", help="directory of the leases")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand."""
    from hermes_core.sandbox.leases import LeaseBook, default_lease_dir

    book = LeaseBook(arguments.lease_dir or default_lease_dir())
    return _list(book, as_json=arguments.json) if arguments.action == "ps" else _collect(book, arguments)


def _list(book: LeaseBook, *, as_json: bool) -> int:
    leases, problems = book.read()
    rows = [{**lease.to_json(), "owner": lease.owner()} for lease in leases]
    if as_json:
        _print_json({"sandboxes": rows, "problems": problems})
        return 0
    if rows:
        _print_table([("SANDBOX", "BACKEND", "AGE", "ROLLOUT", "OWNER"), *map(_cells, rows)])
    else:
        _print(f"no sandboxes in {book.directory}")
    _complain(problems)
    return 0


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    import time

    owner = f"{row['owner']} (pid {row['owner_pid']} on {row['node']})"
    age = _age(time.time() - row["created"])
    return row["sandbox_id"], row["backend"], age, row["rollout_id"] or "-", owner


def _age(seconds: float) -> str:
    """Return the age in its largest unit, as whole ones; a clock that was set back gives 0s."""
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

    leases, problems = book.read()
    dead = [lease for lease in leases if lease.owner() == "dead"]
    removed, failed = asyncio.run(_reclaim(book, dead, arguments)) if dead else ([], {})
    if arguments.json:
        _print_json({"removed": removed, "failed": failed, "problems": problems})
        return 1 if failed else 0
    for sandbox_id in removed:
        _print(f"removed {sandbox_id}")
    for sandbox_id, message in failed.items():
        sys.stderr.write(f"{sandbox_id} is left: {message}\n")
    if not dead:
        _print(f"nothing to remove in {book.directory}")
    _complain(problems)
    return 1 if failed else 0


async def _reclaim(
    book: LeaseBook, dead: list[Lease], arguments: argparse.Namespace
) -> tuple[list[str], dict[str, str]]:
    from hermes_core.contracts.errors import HermesError
    from hermes_core.discovery import load_plugins
    from hermes_core.sandbox.backend import AgentBackend

    registry = load_plugins(getattr(arguments, "plugin_settings", None))
    removed: list[str] = []
    failed: dict[str, str] = {}
    for lease in dead:
        try:
            backend = registry.create("backend", lease.backend, {})
            if not isinstance(backend, AgentBackend):
                failed[lease.sandbox_id] = f"backend {lease.backend!r} knows nothing of leases"
                continue
            await backend.reclaim(lease.handle)
        except HermesError as error:
            failed[lease.sandbox_id] = error.message
            continue
        book.remove(lease.sandbox_id)
        removed.append(lease.sandbox_id)
    return removed, failed


def _complain(problems: list[str]) -> None:
    for problem in problems:
        sys.stderr.write(f"{problem}\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _print_json(value: Any) -> None:
    import json

    _print(json.dumps(value, indent=2))
