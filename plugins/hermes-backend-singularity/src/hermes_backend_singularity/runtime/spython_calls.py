"""Call spython in a separate process that has a timeout and can be killed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hermes_backend_singularity.runtime.failures import InstanceError, last_words
from hermes_backend_singularity.runtime.program import Program, Ran, run

_WORKER: Final = Path(__file__).with_name("spython_worker.py")


def _call(
    program: Program,
    arguments: Sequence[str],
    *,
    seconds: float,
    directory: Path | None = None,
    within: Path | None = None,
) -> Ran:
    with tempfile.TemporaryDirectory(prefix="hermes-spython-", dir=within) as folder:
        # spython calls only a program named `singularity`.
        Path(folder, "singularity").symlink_to(program.path)
        environment = {**program.environment, "PATH": f"{folder}:{program.environment['PATH']}"}
        # Modules are imported from this process's paths only.
        argv = [sys.executable, "-I", str(_WORKER), json.dumps(sys.path), *arguments]
        return run(argv, seconds=seconds, environment=environment, directory=directory)


def build_image(
    program: Program,
    source: str,
    target: Path,
    *,
    form: str,
    options: Sequence[str],
    seconds: float,
    directory: Path | None = None,
) -> Ran:
    """Build an image from a source or a definition file. Blocks.

    Args:
        program: The program that builds it.
        source: The source, in the form of `apptainer build`.
        target: The path of the image.
        form: `sandbox` or `sif`.
        options: Additional options of `apptainer build`.
        seconds: The time limit after which the build is killed.
        directory: The base of relative paths in a definition file.
    """
    arguments = ["build", source, str(target), form, *options]
    # In the build's own folder, so that leftovers of a killed caller are removed with it.
    return _call(program, arguments, seconds=seconds, directory=directory, within=target.parent)


def instance_names(program: Program, *, seconds: float = 30.0) -> list[str]:
    """Return the names of this user's instances. Blocks."""
    ran = _call(program, ["instances"], seconds=seconds)
    try:
        names = json.loads(ran.said.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise InstanceError(
            f"the instances cannot be listed: {last_words(ran.said)}",
            hint="`apptainer instance list` shows the same error",
        ) from error
    return [str(name) for name in names]
