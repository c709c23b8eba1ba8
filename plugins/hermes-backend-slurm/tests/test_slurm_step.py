"""A step's streams, whatever its program and Slurm print."""

from __future__ import annotations

import asyncio
import os

import pytest

from hermes_backend_slurm.step import StepProgram


async def nothing():
    """Cancel nothing."""


async def start_script(script):
    return await StepProgram.start(["/bin/sh", "-c", script], environment=dict(os.environ), cancel=nothing)


async def test_standard_error_without_a_line_end_does_not_block_the_step():
    program = await start_script("head -c 1000000 /dev/zero | tr '\\0' x >&2; exec cat")
    program.stream.writer.write(b"hello")
    assert await asyncio.wait_for(program.stream.reader.readexactly(5), 60) == b"hello"
    program.stream.writer.close()
    assert await program.wait(60.0)


async def test_slurm_s_message_is_the_reason_even_if_it_arrives_in_pieces():
    said = "srun: error: lacks support for cpu binding\\nslurmstepd: error: *** STEP 1.0 ON n1 CAN"
    program = await start_script(f"printf '{said}' >&2; read go; printf 'CELLED ***\\n' >&2; exec sleep 60")
    program.stream.writer.write(b"go\n")
    with pytest.raises(ConnectionResetError, match=r"^slurmstepd: error: \*\*\* STEP 1\.0 ON n1 CANCELLED"):
        await asyncio.wait_for(program.stream.reader.readexactly(1), 60)
    assert not await program.wait(0.0)
