"""The private directory of a verifier: below the sandbox's directory for temporary files, whatever its content."""

from __future__ import annotations

import os
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.local import LocalBackend, LocalOptions
from hermes_verifiers.commands.private_directory import open_room


@asynccontextmanager
async def sandbox(root, level="none", disk_mb=None, **env):
    """Open a sandbox below a folder with spaces and special characters in its name."""
    (root / "two words").mkdir()
    backend = LocalBackend(LocalOptions(root_dir=root / "two words"))
    backend.lease_dir = root / "leases"
    async with aclosing(backend), await backend.open(SandboxSpec(isolation=level, disk_mb=disk_mb, env=env)) as opened:
        yield opened


async def test_a_room_is_among_its_own_sandboxs_temporary_files_where_no_other_sandbox_looks(tmp_path):
    async with sandbox(tmp_path) as opened, open_room(opened) as room:
        own = (await opened.exec('printf %s "$TMPDIR"')).stdout.decode()
        assert room.path.startswith(f"{own}/verify.")
        assert own.startswith(str(tmp_path))
        ended = await room.run('read -r word; echo "$word $HOME"', timeout=60, stdin="given\n")
        assert ended.output == f"given {room.path}/home\n"


LEVELS = ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))]


@pytest.mark.parametrize("level", LEVELS)
async def test_a_directory_that_the_model_has_shut_is_opened_again(level):
    # Not tmp_path: its parents are closed to the unprivileged user that bubblewrap runs as.
    with TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        async with sandbox(Path(folder), level) as opened:
            own = (await opened.exec('cd -P "$TMPDIR"; pwd; chmod 000 .')).output.strip()
            async with open_room(opened) as room:
                assert room.path.startswith(f"{own}/verify.")


async def test_what_a_link_in_its_place_leads_to_is_not_changed(tmp_path):
    async with sandbox(tmp_path) as opened:
        await opened.exec('touch answer; chmod 400 answer; rm -r "$TMPDIR"; ln -s "$PWD/answer" "$TMPDIR"')
        async with open_room(opened):
            assert (await opened.exec("stat -c %a answer")).output == "400\n"


async def test_making_a_room_changes_nothing_in_the_session(tmp_path):
    async with sandbox(tmp_path) as opened:
        look = "declare -F; umask; pwd; compgen -v | grep -v -e BASH -e FUNCNAME -e _hermes_"
        before = (await opened.exec(look)).stdout
        async with open_room(opened):
            assert (await opened.exec(look)).stdout == before


async def test_why_a_room_is_elsewhere_is_logged(tmp_path, caplog):
    async with sandbox(tmp_path) as opened:
        await opened.exec('rm -r "$TMPDIR"; touch "$TMPDIR"')
        async with open_room(opened) as room:
            assert f"private directory is {room.path}, because of: " in caplog.text


@pytest.mark.parametrize(
    "spoil",
    [
        'rmdir "$TMPDIR"; ln -s "$PWD" "$TMPDIR"',
        'rm -r "$TMPDIR"; touch "$TMPDIR"',
        'rmdir "$TMPDIR"',
        "export TMPDIR=$PWD",
        "mkdir t; export TMPDIR=$PWD/t",
        'ln -s "$PWD" "$HOME/link"; export TMPDIR=$HOME/link/.',
        'mkdir t; mv "$HOME" ../moved; ln -s "$PWD" "$HOME"; export TMPDIR=$HOME/t',
        "export TMPDIR=t",
        "export TMPDIR=",
        "unset TMPDIR",
    ],
)
async def test_a_directory_that_the_model_has_spoilt_is_passed_by(tmp_path, spoil):
    async with sandbox(tmp_path) as opened:
        assert (await opened.exec(spoil)).exit_code == 0
        async with open_room(opened) as room:
            assert room.path.startswith("/tmp/verify.")
            assert (await room.run("echo here", timeout=60)).output == "here\n"


@pytest.mark.component("bwrap")
async def test_a_rollout_that_has_filled_its_disk_leaves_a_room_all_the_same():
    if os.geteuid() != 0:
        pytest.skip("limiting the disk needs root")
    with TemporaryDirectory(prefix="hermes-test-") as folder:
        Path(folder).chmod(0o755)
        async with sandbox(Path(folder), "bwrap", disk_mb=8) as opened:
            places = '. ~ "$TMPDIR" /tmp /var/tmp /dev/shm'
            full = f'for place in {places}; do head -c 20000000 /dev/zero > "$place/big"; done'
            assert "No space left on device" in (await opened.exec(full)).output
            await opened.renew()
            async with open_room(opened) as room:
                await room.put("large", bytes(1_000_000))
                assert (await room.run("echo ok", timeout=60, stdin="x" * 1000)).output == "ok\n"
                assert room.path.startswith("/dev/shm/verify.")
