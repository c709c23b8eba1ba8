"""`hermes-core exactness`: check a run's samples against a log from the server's side."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hermes_core.cli import plural

_SHARES = ("sampled_trained_share", "turns_with_loss_share", "prefix_exact_share", "logprob_coverage")

_CAUSES = {
    "unrecorded": "unrecorded (not in rollouts.jsonl: the rollout was cut short, or the log covers more than this run)"
}


class ExactnessCommand:
    """The command `exactness`."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.description = (
            "Look for every token that the server sampled in the samples of DIR/rollouts.jsonl, with loss exactly "
            "once. The log comes from the server's side: `hermes-core record` in front of it writes one."
        )
        parser.add_argument("directory", metavar="DIR", type=Path, help="the folder given to `run` as --out")
        parser.add_argument("--log", metavar="FILE", type=Path, required=True, help="the wire log, JSON lines")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the shares and the first faults; return 1 unless everything is exact."""
        from hermes_tokens.audit.wire_check import check_run

        found = check_run(arguments.directory, arguments.log)
        if arguments.json:
            sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n")
            return 0 if found.is_exact else 1
        report = found.to_json()
        for name in _SHARES:
            share = report[name]
            sys.stdout.write(f"{name:24} {'-' if share is None else f'{share:.6f}'}\n")
        counts = found.total
        where = f"{plural(found.rollouts, 'rollout')}, {plural(counts.turns, 'turn')}"
        sys.stdout.write(f"{'sampled tokens':24} {counts.sampled:,} in {where}\n")
        if counts.constrained:
            drawn = f"{plural(counts.constrained, 'sampled token')} {'was' if counts.constrained == 1 else 'were'}"
            sys.stdout.write(f"{'constrained':24} {drawn} drawn under a mask\n")
        for cause, tokens in found.left_out.items():
            sys.stdout.write(f"{'not handed on':24} {plural(tokens, 'sampled token')}: {_CAUSES.get(cause, cause)}\n")
        if not counts.sampled:
            sys.stdout.write("the log has no token of a rollout that is trained on: nothing was compared\n")
        for fault in found.faults:
            sys.stdout.write(f"{'fault':24} {fault}\n")
        return 0 if found.is_exact else 1
