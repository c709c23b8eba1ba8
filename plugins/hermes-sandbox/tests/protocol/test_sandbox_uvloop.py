"""Trainers often run uvloop, which knows protocols by other signs than asyncio's own loop."""

from __future__ import annotations

import asyncio
import os

import pytest
import uvloop

from hermes_sandbox import open_sandbox


@pytest.mark.parametrize("isolation", ["none", pytest.param("bwrap", marks=pytest.mark.component("bwrap"))])
def test_a_sandbox_works_on_uvloop(isolation, tmp_path):
    data = os.urandom(1 << 20)

    async def use():
        async with open_sandbox("local", isolation=isolation, lease_dir=tmp_path) as sandbox:
            await sandbox.exec("export NAME=value")
            assert (await sandbox.exec("cat; echo $NAME", stdin=b"given ")).output == "given value\n"
            await sandbox.write_file("f", data)
            assert await sandbox.read_file("f") == data
            assert (await sandbox.exec("sleep 60", timeout=0.5)).timed_out

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(use())
