"""Build every package of the workspace into one folder of wheels, without reaching an index."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workspace import ROOT, Package, packages


def main(arguments: Sequence[str]) -> int:
    """Empty the folder and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace to build")
    options = parser.parse_args(arguments)
    out = Path(options.out).absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for package in packages(options.root):
        print(f"built {build(package, out).name}", flush=True)
    return 0


def build(package: Package, out: Path) -> Path:
    """Build one package with the hatchling of this environment; return the wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(command, cwd=package.folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return wheel(package, out)


def wheel(package: Package, folder: Path) -> Path:
    """Return the package's wheel in the folder."""
    (found,) = folder.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
