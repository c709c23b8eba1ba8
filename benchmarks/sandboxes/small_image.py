"""The small image that Docker is measured with: the one of the Docker backend's tests, built where it is absent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_BUILD = Path(__file__).parents[2] / "hermes_backend_docker/tests/support/build_image.sh"
IMAGE: Final = os.environ.get("HERMES_BENCH_IMAGE", "hermes-test:2")


def build_if_absent() -> None:
    """Build it unless the engine has it; without an engine it does nothing, and its users report the missing image."""
    if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode:
        return
    if subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        subprocess.run([_BUILD, IMAGE], check=True, stdout=subprocess.DEVNULL)
