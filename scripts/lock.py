"""Write requirements/*.txt: names, versions and hashes for every supported Python and platform.

Inputs are the packages' own pyproject.toml files and requirements/*.in. The outputs name no index, so that they
install from whichever index a user's pip is set to. `--upgrade` moves every pin to the newest allowed version.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from workspace import ROOT, third_party

REQUIREMENTS = ROOT / "requirements"
HEADER = "# Written by `make lock` from the pyproject.toml files and requirements/*.in; do not edit.\n"


def main(arguments: Sequence[str]) -> int:
    """Compile run.txt, then dev.txt on top of the same versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv", help="the uv program to use")
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    options = parser.parse_args(arguments)
    run, dev = REQUIREMENTS / "run.txt", REQUIREMENTS / "dev.txt"
    runtime = [*_lines("build.in"), *third_party()]
    uv = shutil.which(options.uv) or options.uv  # below it is run in another folder
    uv = str(Path(uv).absolute()) if "/" in uv else uv
    _compile(uv, runtime, run, upgrade=options.upgrade)
    everything = [*runtime, *third_party(for_tests=True), *_lines("dev.in")]
    _compile(uv, everything, dev, upgrade=options.upgrade, constraints=run)
    return 0


def _lines(name: str) -> list[str]:
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _compile(
    uv: str, requirements: Iterable[str], output: Path, *, upgrade: bool, constraints: Path | None = None
) -> None:
    """Resolve the requirements into the output file; pins already there are kept unless they no longer fit."""
    flags = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
    flags += ["--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    flags += ["--upgrade"] if upgrade else []
    flags += ["--constraints", str(constraints)] if constraints else []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "all.in")
        source.write_text("\n".join(sorted(set(requirements))) + "\n", encoding="utf-8")
        target = Path(folder, output.name)
        if output.exists():
            target.write_bytes(output.read_bytes())
        # Outside the project, so that uv takes neither the workspace's sources nor its settings.
        command = [uv, "pip", "compile", str(source), "--output-file", str(target), *flags]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        output.write_text(HEADER + target.read_text(encoding="utf-8").removeprefix(HEADER), encoding="utf-8")
    print(f"wrote {output.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
