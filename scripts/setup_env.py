"""Make the private virtual environment: pinned requirements, then every package of the workspace editable.

Standard library only; run it with any Python >= 3.11. A second call does nothing, a call after an interrupted one
starts over, two calls at a time wait for each other. What is installed is noted in `hermes-setup.json` inside the
environment.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from workspace import ROOT, packages

# In the order of growth: each group holds everything of the one before it.
GROUPS = ("run", "dev")
STATE = "hermes-setup.json"
NO_PIP = """\
error: this Python cannot make a virtual environment with pip, and neither `uv` nor a system-wide pip >= 22.3 was found.
hint: on Debian or Ubuntu: apt-get install python3-venv
hint: anywhere else: install uv, then run the same command again"""


class SetupError(Exception):
    """The environment could not be made; the message says what to do."""


@dataclass(slots=True)
class State:
    """What an environment holds, as far as this script put it there."""

    interpreter: str = ""
    pins: str = ""
    packages: str = ""
    groups: list[str] = field(default_factory=list)
    # Digests of the requirements of examples that are installed besides, by path.
    also: dict[str, str] = field(default_factory=dict)
    # An environment somebody else made is installed into, never deleted.
    made_here: bool = False
    busy: bool = False

    @classmethod
    def read(cls, environment: Path) -> State | None:
        """Return the noted state, or None where there is none that can be read."""
        try:
            return cls(**json.loads((environment / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, environment: Path) -> None:
        """Note the state in one step, so that an interruption leaves the old note or the new one."""
        partial = environment / (STATE + ".partial")
        partial.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        partial.replace(environment / STATE)


def main(arguments: Sequence[str]) -> int:
    """Set up the named environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the environment's folder")
    parser.add_argument("--group", choices=GROUPS, default="dev", help="run: what a user needs; dev: tests and checks")
    parser.add_argument("--also", type=Path, help="requirements of an example, installed besides the group")
    options = parser.parse_args(arguments)
    if sys.version_info < (3, 11):  # noqa: UP036 -- this very line is what tells the user of an older Python
        raise SystemExit(f"error: Python 3.11 or newer is needed, this is {platform.python_version()}")
    environment = Path(options.venv).absolute()
    try:
        with _locked(environment):
            ensure(environment, options.group)
            if options.also is not None:
                add(environment, options.also)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: setting up {environment} failed in: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        print("hint: the lines above say why; the next call starts over", file=sys.stderr)
        return 1
    return 0


def ensure(environment: Path, group: str) -> None:
    """Bring the environment to the wanted group; do nothing when it is there already."""
    wanted = _wanted()
    state = State.read(environment)
    if state is not None and _is_current(environment, state, wanted, group):
        return
    if _must_start_over(environment, state, wanted):
        _say(f"removing the outdated or unfinished {environment}")
        shutil.rmtree(environment)
        state = None
    state = state or _created(environment, wanted.interpreter)
    state.busy = True
    state.write(environment)
    _install(environment, state, wanted, group)
    state.busy = False
    state.write(environment)
    _say("ready")


def add(environment: Path, requirements: Path) -> None:
    """Install the requirements of an example into an environment that is there, unless they are in it."""
    state = State.read(environment)
    digest, name = _digest([requirements]), str(requirements.absolute())
    if state is None or state.also.get(name) == digest:
        return
    _say(f"installing {requirements}")
    _run([*_installer(environment), "-r", requirements])
    state.also[name] = digest
    state.write(environment)


def _wanted() -> State:
    """Return the digests of everything that decides what is installed."""
    requirements = [ROOT / "requirements" / f"{name}.txt" for name in (*GROUPS, "bare")]
    projects = [package.folder / "pyproject.toml" for package in packages()]
    return State(
        interpreter=f"{Path(sys.executable).resolve()} {platform.python_version()}",
        pins=_digest(requirements),
        packages=_digest(projects),
    )


def _is_current(environment: Path, state: State, wanted: State, group: str) -> bool:
    return (
        not state.busy
        and group in state.groups
        and (state.pins, state.packages) == (wanted.pins, wanted.packages)
        and (state.interpreter == wanted.interpreter or not state.made_here)
        and _python(environment).exists()
    )


def _must_start_over(environment: Path, state: State | None, wanted: State) -> bool:
    """Say whether the folder is ours and of no more use."""
    if state is None or not state.made_here:
        return False
    same = (state.pins, state.interpreter) == (wanted.pins, wanted.interpreter)
    return state.busy or not same or not _python(environment).exists()


def _created(environment: Path, interpreter: str) -> State:
    """Make the environment, or take over one that somebody made by hand."""
    state = State(interpreter=interpreter, made_here=True, busy=True)
    if (environment / "pyvenv.cfg").is_file() and _python(environment).exists():
        _say(f"installing into {environment}, which was made by hand")
        state.made_here = False
        return state
    if environment.is_dir() and any(environment.iterdir()):
        raise SetupError(f"error: {environment} is not a virtual environment\nhint: remove it, or name another: VENV=…")
    _say(f"making {environment} with Python {platform.python_version()}")
    environment.mkdir(parents=True, exist_ok=True)
    # Noted before the first file, so that an interruption at any later moment is seen.
    state.write(environment)
    _make_venv(environment)
    return state


def _make_venv(environment: Path) -> None:
    """Make it with its own pip where this Python can; Debian's cannot without python3-venv."""
    full = subprocess.run([sys.executable, "-m", "venv", str(environment)], capture_output=True, text=True, check=False)
    if full.returncode == 0:
        return
    _say("this Python has no ensurepip; making the environment without its own pip")
    bare = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment)]
    result = subprocess.run(bare, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        shutil.rmtree(environment, ignore_errors=True)
        raise SetupError(f"{full.stderr}{result.stderr}{NO_PIP}")
    # `--clear` took the note along.
    State(made_here=True, busy=True).write(environment)


def _install(environment: Path, state: State, wanted: State, group: str) -> None:
    """Install the pins, then the packages in place, with no index in reach for the second part."""
    install = _installer(environment)
    if state.pins != wanted.pins or group not in state.groups:
        _say(f"installing requirements/{group}.txt")
        _install_pins(environment, install, ROOT / "requirements" / f"{group}.txt")
        if group == "dev":
            # Only their data is wanted: what they require would be gigabytes.
            _run([*install, "--require-hashes", "--no-deps", "-r", ROOT / "requirements" / "bare.txt"])
        state.groups = list(GROUPS[: GROUPS.index(group) + 1])
    members = packages()
    _say("installing " + ", ".join(package.name for package in members))
    editable = [part for package in members for part in ("-e", str(package.folder))]
    _run([*install, "--no-index", "--no-deps", "--no-build-isolation", *editable])
    state.pins, state.packages = wanted.pins, wanted.packages


def _install_pins(environment: Path, install: list[str | Path], requirements: Path) -> None:
    """Install pins, with the uv among them where it reaches the packages: it takes a fifth of pip's time."""
    wanted: list[str | Path] = ["--require-hashes", "-r", requirements]
    if uv := re.search(r"^uv==(?:.*\\\n)*.*\n", requirements.read_text(encoding="utf-8"), re.MULTILINE):
        alone = environment / "uv.txt"
        alone.write_text(uv.group(), encoding="utf-8")
        _run([*install, "--require-hashes", "-r", alone])
        command = [str(environment / "bin" / "uv"), "pip", "install", "--quiet", "--compile-bytecode"]
        if _call([*command, "--python", _python(environment), *wanted]) == 0:
            return
        _say("uv could not install them, for the reason above; now with pip")
    _run([*install, *wanted])


def _installer(environment: Path) -> list[str | Path]:
    """Return the start of an install command that works for this environment."""
    python = _python(environment)
    quiet = ["--quiet", "--disable-pip-version-check"]
    if _works([python, "-m", "pip", "--version"]):
        return [python, "-m", "pip", "install", *quiet]
    # `--python` came with pip 22.3.
    if _works([sys.executable, "-m", "pip", "--python", python, "--version"]):
        return [sys.executable, "-m", "pip", "--python", python, "install", *quiet]
    if shutil.which("uv") and _works(["uv", "--version"]):
        return ["uv", "pip", "install", "--quiet", "--python", python]
    shutil.rmtree(environment)
    raise SetupError(NO_PIP)


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _works(command: Sequence[str | Path]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(command: Sequence[str | Path]) -> None:
    if code := _call(command):
        raise subprocess.CalledProcessError(code, list(command))


def _call(command: Sequence[str | Path]) -> int:
    # uv would otherwise know only the certificates that it brings; both names, for older versions.
    variables = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, env=variables).returncode


def _digest(paths: Iterable[Path]) -> str:
    # The place counts: an editable install points to it.
    total = hashlib.sha256(str(ROOT).encode())
    for path in paths:
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


@contextlib.contextmanager
def _locked(environment: Path) -> Iterator[None]:
    """Hold the environment's lock, which lies beside it because the folder itself may be made anew."""
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_name(environment.name + ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another set-up of {environment}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(f"setup: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
