"""Small images made without a registry: one from this machine's packages, and one with only a static busybox."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent
HERE = Path(tempfile.gettempdir(), f"hermes-test-apptainer-{os.geteuid()}-1")
"""The folder of images, which is kept between runs of the tests. It is outside of root's home, so that the unprivileged
user of a test can read it."""


def program() -> str | None:
    """Return the path of apptainer or singularity: in the prefix that HERMES_TEST_APPTAINER names, or on PATH."""
    search = f"{os.environ.get('HERMES_TEST_APPTAINER', '')}:{os.environ.get('PATH', os.defpath)}"
    return shutil.which("apptainer", path=search) or shutil.which("singularity", path=search)


def run(*argv: str | Path, cwd: str | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a program that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


def _make_own_folder(path: Path) -> None:
    """Create a folder; fail if the path is something else, or a folder that other users can write to."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o755)
    found = path.lstat()  # of the link itself, not of its target
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        pytest.fail(
            f"expected {path} to be a folder, not a link, that this user owns and no other user can write to; "
            "check what it is, and remove it",
            pytrace=False,
        )


@contextmanager
def once(name: str) -> Iterator[Path]:
    """Lock and yield a path, so that only one process creates it."""
    _make_own_folder(HERE)
    with (HERE / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield HERE / name


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a path; create it with `make` if it does not exist."""
    with once(name) as path:
        if not path.exists():
            partial = HERE / f".{name}"
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(path)
        return path


def root() -> Path:
    """A root file system with bash and Python."""
    return make_once("root", lambda target: run(SUPPORT / "build_root.sh", target))


def _build(source: str | Path, target: Path, *options: str) -> None:
    found = program()
    assert found is not None
    run(found, "build", *options, target, source, env={**os.environ, "APPTAINER_CACHEDIR": str(HERE / "blobs")})


def sandbox() -> Path:
    """A sandbox directory with bash and Python."""
    return make_once("sandbox", lambda target: _build(root(), target, "--sandbox"))


def plain_root() -> Path:
    """A root file system with only a busybox."""

    def make(target: Path) -> None:
        for folder in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp"):
            (target / folder).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as debs:
            run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "busybox-static", cwd=debs)
            [package] = Path(debs).iterdir()
            run("dpkg-deb", "--extract", package, f"{debs}/x")
            shutil.copy(f"{debs}/x/bin/busybox", target / "bin/busybox")
        busybox = target / "bin/busybox"
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in set(listed) - {"busybox"}:
            (target / "bin" / name).symlink_to("busybox")
        (target / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nagent:x:1001:1001::/:/bin/sh\n")
        (target / "etc/group").write_text("root:x:0:\nagent:x:1001:\n")

    return make_once("plain-root", make)


def archive() -> Path:
    """An archive, in the form of `docker save`, of the busybox image with an environment variable."""

    def make(target: Path) -> None:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as packed:
            packed.add(plain_root(), ".")
        digest = hashlib.sha256(layer.getvalue()).hexdigest()
        config = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        described = json.dumps(config).encode()
        named = hashlib.sha256(described).hexdigest()
        manifest = [{"Config": f"{named}.json", "RepoTags": ["plain:1"], "Layers": [f"{digest}.tar"]}]
        files = {f"{digest}.tar": layer.getvalue(), f"{named}.json": described}
        files["manifest.json"] = json.dumps(manifest).encode()
        with tarfile.open(target, "w") as packed:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                packed.addfile(entry, io.BytesIO(data))

    return make_once("plain.tar", make)
