"""Crowds of processes that fork as fast as C can, and end by themselves whatever becomes of what is tested."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_sandbox.agent.processes import read_table

_FORKER = """
#define _GNU_SOURCE
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* At most 2,000 processes in all, none of which lives for more than 20 seconds. A failed fork is tried again, so that
   each process that is killed makes room for another while the crowd is being ended: a hundred of them try a thousand
   times a second. More often would leave nothing of the machine to whoever ends them, for a fork that a control group
   refuses has done most of its work by then. */
int main(void) {
    int *left = mmap(0, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    time_t end = time(0) + 20;
    *left = 2000;
    while (time(0) < end) {
        if (__sync_fetch_and_sub(left, 1) <= 0) {
            __sync_fetch_and_add(left, 1);
            usleep(1000);
            continue;
        }
        int child = fork();
        if (child == 0) setsid();
        if (child < 0) {
            __sync_fetch_and_add(left, 1);
            usleep(100000);
        }
    }
    return 0;
}
"""
_NAME_LENGTH = 15
"""Characters that the kernel keeps of a program's name."""


def forker(folder: Path) -> bytes:
    """Return a program that forks at full speed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "forker.c").write_text(_FORKER)
    subprocess.run([compiler, "-O2", "-o", folder / "forker", folder / "forker.c"], check=True)
    return (folder / "forker").read_bytes()


def running(name: str) -> list[int]:
    """Return the living processes of a program, seen from outside by its name."""
    found = []
    for pid in read_table():
        try:
            said = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if said == name[:_NAME_LENGTH]:
            found.append(pid)
    return found
