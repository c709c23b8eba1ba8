"""Convert errors of Slurm's commands to typed errors with hints."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from hermes_core.contracts.errors import BackendError, SandboxRefusedError

_log = logging.getLogger(__name__)
_REFUSALS: Final = (
    ("invalid partition", "`sinfo` lists the partitions; set the option partition"),
    ("invalid account", "`sacctmgr show associations user=$USER` lists your accounts; set the option account"),
    ("invalid qos", "`sacctmgr show associations user=$USER format=account,qos` lists yours; set the option qos"),
    ("invalid feature", "`sinfo -o '%N %f'` lists the features; set the option constraint"),
    ("invalid generic resource", "`sinfo -o '%N %G'` lists the resources; set the option gres"),
    ("node configuration is not available", "`sinfo -o '%P %D %c %m %G'` shows what nodes have; ask for less"),
    ("more processors requested", "`sinfo -o '%P %c'` shows what nodes have; lower the option cpus_per_node"),
    ("time limit is invalid", "`sinfo -o '%P %l'` shows the partitions' limits; lower the option time"),
    ("invalid --time specification", 'the option time takes "30" (minutes), "2:00:00" or "1-12"'),
    ("unrecognized option", "the option extra_args takes salloc's options, each in one word"),
    ("access/permission denied", "this user has no permission; `squeue -j` shows the job's owner"),
)
_PASSING: Final = (
    ("unable to contact slurm controller", "`scontrol ping` must answer; is slurmctld up, and SLURM_CONF right?"),
    ("unable to establish configuration source", "set the option conf or SLURM_CONF to the configuration"),
    ("could not establish a configuration source", "set the option conf or SLURM_CONF to the configuration"),
    ("partition which is down", "`sinfo` shows the state of the partitions; set the option partition"),
    ("in an unavailable partition", "`sinfo` shows the state of the partitions; set the option partition"),
    ("munge", "`munge -n | unmunge` must work here: is munged running?"),
    ("violates accounting/qos policy", "a limit of the account is reached: `squeue --me`, or ask for less"),
)
_NEVER: Final = {
    "PartitionConfig": "`sinfo -o '%P %D %c %m %l'` shows what partitions have; ask for less",
    "PartitionNodeLimit": "`sinfo -o '%P %s'` shows how many nodes a job may have; lower the option nodes",
    "PartitionTimeLimit": "`sinfo -o '%P %l'` shows the partitions' limits; lower the option time",
    "BadConstraints": "`sinfo -o '%N %f %c %m %G'` shows what nodes have; ask for less, or set the option constraint",
    "AccountNotAllowed": "`scontrol show partition` lists the allowed accounts; set the option account or partition",
    "QOSNotAllowed": "`scontrol show partition` lists the allowed QOS; set the option qos or partition",
    "InvalidAccount": "`sacctmgr show associations user=$USER` lists your accounts; set the option account",
    "InvalidQOS": "`sacctmgr show associations user=$USER format=account,qos` lists yours; set the option qos",
}
"""Reasons of pending jobs that can never start unchanged."""
_SAID: Final = 600


def explain(what: str, said: str, *, passing: bool = False) -> BackendError:
    """Return the error for a Slurm command that failed; its message begins with `what`.

    If `passing`, the error never ends a run, because nodes come and go while an allocation lasts.
    """
    text = tail(said)
    lower = said.lower()
    message = f"{what}: {text}"
    for words, hint in () if passing else _REFUSALS:
        if words in lower:
            return SandboxRefusedError(message, hint=hint)
    for words, hint in _PASSING:
        if words in lower:
            return BackendError(message, hint=hint)
    return BackendError(message, hint="`sinfo` and `squeue --me` show the state of the cluster and of your jobs")


def refuse_for_ever(job: str, reason: str) -> None:
    """Raise `SandboxRefusedError` if the reason of a pending job means that it can never start."""
    if reason in _NEVER:
        raise SandboxRefusedError(f"Slurm will never start job {job} unchanged: {reason}", hint=_NEVER[reason])


def remember(error: BaseException, left: str, trouble: BackendError) -> None:
    """Log that something could not be ended while an error was handled, and add that to the error as a note."""
    said = f"{left}: {trouble.message}; `hermes-core sandboxes gc --all` ends it when this process has ended"
    _log.warning("%s", said)
    error.add_note(said)


def without_noise(lines: Iterable[str]) -> list[str]:
    """Remove the message that every step prints on a cluster without processor binding."""
    return [line for line in lines if "lacks support for cpu binding" not in line]


def tail(said: str) -> str:
    """Return the end of a command's output, on one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return "; ".join(lines)[-_SAID:] or "no output"
