"""Install every wheel by itself, load all of it, and run the package's own tests there.

Each package gets an empty environment with its wheel, what the wheel declares, and nothing else; siblings come from
the built wheels only when they are declared. There every module is imported, every entry point loaded and
`plugins list` run, so that an undeclared import fails. Then the test runner, the package's extras and its dependency
group `test` are added, and the tests run on a copy that cannot see the source tree. With `--lowest` everything a
package of ours declares is installed in the lowest version it allows, so that a lower bound is a tested promise.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_wheels import wheel
from second_look import last_failed, worth_a_second_look
from workspace import ROOT, Package, packages, requirement_name

TEST_RUNNER = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")
PROBE = Path(__file__).with_name("probe_package.py")


@dataclass(frozen=True, slots=True)
class Bench:
    """What all packages are checked with."""

    root: Path
    wheels: Path
    members: dict[str, Package]
    pins: tuple[str, ...]
    jobs: int
    reports: Path | None
    lowest: bool
    share: int = 1

    def check(self, package: Package, folder: Path, *, with_tests: bool) -> bool:
        """Check one package in an empty folder."""
        python = _new_environment(folder / "env")
        self._install(python, [package.name], [])
        # Isolated from the tree and from this environment: only what was installed is importable.
        extras = [requirement_name(line) for lines in package.extras.values() for line in lines]
        if _run([python, "-I", PROBE, package.name, package.import_name, *extras], cwd=folder) != 0:
            return False
        program = python.with_name("hermes-core")
        if program.exists() and _run([program, "plugins", "list", "--load"], cwd=folder) != 0:
            return False
        return not with_tests or self._tests(package, python, folder)

    def _tests(self, package: Package, python: Path, folder: Path) -> bool:
        # All packages together are what `make check` installs; here they would hide what the tests do not name.
        extras = (line for name, lines in package.extras.items() if name != "all" for line in lines)
        wanted = [*package.test_dependencies, *extras]
        siblings = [line for line in wanted if requirement_name(line) in self.members]
        others = [line for line in wanted if requirement_name(line) not in self.members]
        self._install(python, [package.name, *siblings], [*TEST_RUNNER, *others])
        install(python, ["--no-deps", *_pins(self.root / "requirements" / "bare.txt")])
        tree = self._copy(package, folder / "tree")
        tests = (tree / package.folder.relative_to(self.root) / "tests").relative_to(tree)
        command = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-m",
            "not components and not deep",
            str(tests),
        ]
        beside = ["-n", str(self.jobs)] if self.jobs > 1 else []
        if self.reports:
            beside += [f"--junit-xml={self.reports / f'alone-{package.name}.xml'}"]
        return self._run_tests([*command, *beside], tree) or self._second_look(command, tree)

    def _run_tests(self, command: Sequence[str], tree: Path) -> bool:
        return _run(command, cwd=tree, HERMES_TEST_SHARE=str(self.share)) == 0

    def _second_look(self, command: Sequence[str], tree: Path) -> bool:
        failed = last_failed(tree)
        if not worth_a_second_look(failed):
            return False
        passed = self._run_tests([*command, "--last-failed", "--last-failed-no-failures=none"], tree)
        if passed:
            print(*(f"UNSTEADY {test}" for test in failed), sep="\n", flush=True)
        return passed

    def _install(self, python: Path, siblings: Iterable[str], others: Sequence[str]) -> None:
        """Install the wheels of these packages and of the siblings they declare, and whatever else is wanted.

        Each wheel by its path, since an index may hold a stranger's package of the same name; with the extras that are
        asked for, as in "name[extra]>=1".
        """
        siblings = list(siblings)
        extras = {requirement_name(line): found.group() for line in siblings if (found := re.search(r"\[.*?\]", line))}
        members = self._closure(map(requirement_name, siblings))
        wheels = [f"{wheel(member, self.wheels)}{extras.get(member.name, '')}" for member in members]
        pins, flags = self.pins, []
        if self.lowest:
            lines = [line for member in members for line in member.dependencies]
            declared = {requirement_name(line): line for line in lines if requirement_name(line) not in self.members}
            # What is declared finds its own level, and so does what that needs; the test runner keeps its pins.
            kept = set(TEST_RUNNER) - set(declared)
            pins = tuple(line for line in pins if requirement_name(line) in kept)
            others = [*(line for line in others if line not in declared), *declared.values()]
            flags = ["--resolution", "lowest-direct"]
        constraints = python.parent.parent / "constraints.txt"
        constraints.write_text("\n".join([*pins, ""]), encoding="utf-8")
        install(python, [*flags, "--constraint", str(constraints), *wheels, *others])

    def _closure(self, names: Iterable[str]) -> list[Package]:
        found: dict[str, Package] = {}
        pending = list(names)
        while pending:
            member = self.members[pending.pop()]
            found[member.name] = member
            required = map(requirement_name, member.dependencies)
            pending += [name for name in required if name in self.members and name not in found]
        return list(found.values())

    def _copy(self, package: Package, tree: Path) -> Path:
        """Copy the tests with the settings they run under and the shipped tasks, without any source."""
        target = tree / package.folder.relative_to(self.root)
        ignored = shutil.ignore_patterns("src", "__pycache__", ".hypothesis")
        shutil.copytree(package.folder, target, ignore=ignored)
        for name in ("pyproject.toml", "conftest.py", "tests/tiers.toml", "examples/terminal_tasks.jsonl"):
            if (self.root / name).exists():
                (tree / name).parent.mkdir(exist_ok=True)
                shutil.copy(self.root / name, tree / name)
        return tree


def main(arguments: Sequence[str]) -> int:
    """Check all packages, or those named, and report every failure before failing."""
    options = _parser().parse_args(arguments)
    members = {package.name: package for package in packages(options.root)}
    chosen = [members[name] for name in options.packages] or list(members.values())
    if len(chosen) > 1 and options.share == 0:
        failed = _beside_each_other(chosen, options)
    else:
        failed = _one_by_one(chosen, members, options)
    print(f"install alone: {len(chosen) - len(failed)} of {len(chosen)} packages", *(f"FAILED: {n}" for n in failed))
    return 1 if failed else 0


def _beside_each_other(chosen: Sequence[Package], options: argparse.Namespace) -> list[str]:
    """Check packages in processes of their own, since with few tests most is waiting; show each when it ends."""
    flags = ["--wheels", options.wheels, "--root", options.root, "--jobs", "1", "--share", "0"]
    flags += ["--reports", options.reports] if options.reports else []
    flags += [f"--{name.replace('_', '-')}" for name in ("no_tests", "lowest") if getattr(options, name)]

    def check(package: Package) -> bool:
        command = [sys.executable, __file__, package.name, *map(str, flags)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout, end="", flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(options.jobs) as pool:
        passed = list(pool.map(check, chosen))
    return [package.name for package, good in zip(chosen, passed, strict=True) if not good]


def _one_by_one(chosen: Sequence[Package], members: dict[str, Package], options: argparse.Namespace) -> list[str]:
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="alone-") as scratch:
        bench = Bench(
            root=options.root,
            wheels=options.wheels.absolute(),
            members=members,
            pins=_pins(options.root / "requirements" / "dev.txt"),
            jobs=options.jobs,
            reports=options.reports.absolute() if options.reports else None,
            lowest=options.lowest,
            share=options.share,
        )
        for package in chosen:
            began = time.monotonic()
            print(f"== {package.name}", flush=True)
            try:
                passed = bench.check(package, _folder(scratch, package.name), with_tests=not options.no_tests)
            except subprocess.CalledProcessError:
                passed = False  # the installer has said why
            print(f"== {package.name}: {'ok' if passed else 'FAILED'} in {time.monotonic() - began:.1f} s", flush=True)
            failed += [] if passed else [package.name]
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="names of packages; none: all")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="where `make wheels` put them")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reports", type=Path, help="a folder for junit xml files")
    parser.add_argument(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="run one in N of the fast tests, and one a module; 0: that one alone",
    )
    parser.add_argument("--no-tests", action="store_true", help="only install, import and load entry points")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions that are declared (needs uv)")
    return parser


def _folder(scratch: str, name: str) -> Path:
    folder = Path(scratch, name)
    folder.mkdir()
    return folder


def _pins(path: Path) -> tuple[str, ...]:
    """Return the pins without their hashes, which would be demanded of the local wheels too."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return tuple(re.findall(r"^[A-Za-z0-9][^\\\n]*", text, re.MULTILINE))


def _new_environment(folder: Path) -> Path:
    """Make an environment with uv where it works, since it takes a tenth of the time."""
    if _uv() is None or _run([_uv() or "", "venv", "--quiet", "--python", sys.executable, folder], cwd=None) != 0:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def install(python: Path, wanted: Sequence[str]) -> None:
    """Install with uv, or with pip where uv is absent or does not reach the index that pip is set to."""
    uv = _uv()
    if uv and _run([uv, "pip", "install", "--quiet", "--python", python, *wanted], cwd=None) == 0:
        return
    if _run([python, "-m", "pip", "--version"], cwd=None) != 0:
        subprocess.run([python, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run(command, check=True)


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(command: Sequence[str | Path], *, cwd: Path | None, **further: str) -> int:
    """Run with the environment's programs first on PATH and nothing of the calling Python's settings."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    variables = {name: value for name, value in os.environ.items() if name not in dropped}
    # uv would otherwise know only the certificates that it brings; both names, for older versions.
    variables |= {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    variables |= further
    variables["PATH"] = os.pathsep.join([str(Path(command[0]).parent), variables.get("PATH", "")])
    return subprocess.run(command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
