"""Identifies this machine, its boot and the PID namespace."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_MACHINE: Final = re.compile(r"[0-9a-f]{32}")
_ADDRESS: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_BOARD: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_BOARD: Final = "03000200-0400-0500-0006-000700080009"
"""Placeholder texts of firmware whose maker filled in nothing."""
_LOCAL: Final = 0x03
"""The bit of a locally assigned address: whole fleets of virtual machines can have the same one."""
_PERMANENT: Final = "0"
_LETTERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """Where a process runs. `machine_id` is empty if nothing identifies the machine."""

    node: str
    machine_id: str
    boot_id: str
    pid_namespace: str

    @classmethod
    def now(cls) -> Self:
        """Return where the calling process runs; raises OSError if /proc does not tell."""
        boot_id, pid_namespace = _read_boot(os.getpid())
        return cls(
            node=os.uname().nodename,
            machine_id=machine_id(Path("/")),
            boot_id=boot_id,
            pid_namespace=pid_namespace,
        )

    def is_on(self, node: str, machine: str) -> bool:
        """Tell whether this is provably the machine of that name and id; an empty id proves nothing."""
        known = set(self.machine_id.split(".")) & set(machine.split(".")) - {""}
        return self.node == node and bool(known)


@functools.lru_cache(maxsize=1)
def _read_boot(_pid: int) -> tuple[str, str]:
    """Return the boot's id and the PID namespace of this process: neither changes while it lives."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot_id, str(Path("/proc/self/ns/pid").readlink())


os.register_at_fork(after_in_child=_read_boot.cache_clear)  # a child may be in another namespace


@functools.cache  # hardware: it does not change while a process lives
def machine_id(root: Path) -> str:
    """Return an identity that a machine keeps from boot to boot and shares with no other, or "" if there is none.

    /etc/machine-id alone is not enough: containers and virtual machines cloned from one image share it. It counts
    together with hardware: permanent network addresses, or the board's number, which only
    root may read. There is a word for each of the two, so that one of them is enough to recognise the machine. They
    are digests, since they are sent to engines.
    """
    try:
        installed = (root / "etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    if not _MACHINE.fullmatch(installed) or len(set(installed)) == 1:
        return ""
    proofs = {"addresses": " ".join(sorted(_addresses(root / "sys/class/net"))), "board": _board(root)}
    words = (f"hermes-core {installed} {kind} {proof}" for kind, proof in proofs.items() if proof)
    return ".".join(hashlib.sha256(word.encode()).hexdigest()[:_LETTERS] for word in words)


def _addresses(folder: Path) -> Iterator[str]:
    try:
        links = list(folder.iterdir())
    except OSError:
        return
    for link in links:
        # Without a device it is virtual, and an external one may be plugged into another machine tomorrow.
        if not (link / "device").exists() or (link / "device/subsystem").resolve().name == "usb":
            continue
        permanent = _text(link / "bonding_slave/perm_hwaddr")
        if not permanent and _text(link / "addr_assign_type") == _PERMANENT:
            permanent = _text(link / "address")
        if _ADDRESS.fullmatch(permanent) and not int(permanent[:2], 16) & _LOCAL:
            yield permanent


def _board(root: Path) -> str:
    number = _text(root / "sys/class/dmi/id/product_uuid")
    return number if _BOARD.fullmatch(number) and number != _NO_BOARD and len(set(number)) > 2 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip().lower()
    except (OSError, ValueError):
        return ""
