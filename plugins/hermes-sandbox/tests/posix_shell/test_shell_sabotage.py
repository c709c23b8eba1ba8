"""Nothing that a command leaves behind prevents later commands, in sandboxes that a POSIX shell serves.

The commands' shell is this machine's `sh`, and bash under that name, which rejects more of what it reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_support import plain_sandbox

LONG = 600.0
"""Seconds that no command here needs on any machine. A report of a timeout is a failure."""
STATE = "state=$(echo ../state/.hermes-*/u)"
DAMAGING = [
    "export PPID UID EUID",
    "export SHELLOPTS BASHOPTS",
    "export OPTIND LINENO",
    "export IFS=_ PATH=/nowhere HOME=/nowhere ENV=/nowhere BASH_ENV=/nowhere POSIXLY_CORRECT=1",
    "readonly _hermes_dir _hermes_home _hermes_save _hermes_mark _hermes_path; export _hermes_path",
    "readonly HERMES_SANDBOX",
    "set -r",
    "set -eu",
    "exec >/dev/null",
    "trap 'exit 0' EXIT",
    f"{STATE}; echo 'exit 0' >$state/state; kill -9 $$",
    f"{STATE}; rm -f $state/state; mkfifo $state/state; kill -9 $$",
    f"{STATE}; rm -f $state/new; mkfifo $state/new; kill -9 $$",
    f"{STATE}; rm -f $state/new $state/state; mkdir $state/new $state/state; kill -9 $$",
    f"{STATE}; rm -f $state/state; ln -s /dev/zero $state/state; kill -9 $$",
]


@pytest.fixture(params=["sh", "bash"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sh":
        yield "sh"
        return
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "sh").symlink_to(bash)
    start = tmp_path / "start"
    start.write_text(f'#!{bash}\nexport PATH={tmp_path}:$PATH\nexec {tmp_path}/sh "$@"\n', encoding="utf-8")
    start.chmod(0o755)
    yield str(start)


async def require_recovery(shell: str, damage: str) -> None:
    async with plain_sandbox(shell) as box:
        await box.exec("export KEPT=1")
        await box.exec(damage, timeout=LONG)
        for name in ("first", "second"):
            result = await box.exec(f"echo {name} ${{KEPT-lost}}; (exit 3)", timeout=LONG)
            assert not result.timed_out
            assert result.exit_code == 3
            assert result.stdout in {f"{name} 1\n".encode(), f"{name} lost\n".encode()}


async def test_after_a_variable_that_nobody_may_set_commands_run(shell: str) -> None:
    await require_recovery(shell, DAMAGING[0])


@pytest.mark.parametrize("damage", DAMAGING)
async def test_after_every_damage_commands_run(shell: str, damage: str) -> None:
    await require_recovery(shell, damage)
