"""This machine's own Python, packed so that the agent can run on it where an image has none.

What is packed is what a Python that has imported all that the agent imports had loaded: the interpreter, its shared
libraries with the dynamic loader, and the modules. Nothing of the image is used but its kernel and `/bin/sh`, so it
does not matter which C library an image has, or whether it has one.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import platform
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final

from hermes_core.contracts.errors import BackendError, UnavailableComponentError
from hermes_sandbox.agent.slot_lifecycle import NEEDED_LATER
from hermes_sandbox.backend.hosts.ownership_scripts import make_readonly_script
from hermes_sandbox.protocol.bootstrap import PYTHON_FLAGS, agent_sources
from hermes_sandbox.protocol.processes import ptyprocess_source

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
_FORM: Final = "2"
"""Another one where the same files are packed otherwise."""
_SECONDS: Final = 60
_LATER: Final = ("encodings.idna", "traceback", "locale")
"""What Python itself imports when it is first needed."""
# ld.so gets the libraries' folder by an argument: a variable would reach what the agent starts. What an image preloads
# is for its own C library.
_START: Final = """\
#!/bin/sh
unset LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH
d=${0%/*}/..
exec "$d/lib/LOADER" --library-path "$d/lib" --argv0 "$0" "$d/bin/python" "$@"
"""
_SURVEY: Final = r"""
import ctypes, json, os, sys
imports = []
for name in json.loads(sys.argv[1]):
    try:
        __import__(name)
        imports.append(name)
    except ImportError:
        pass  # of another Python, which this one does without
class Info(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_void_p), ("name", ctypes.c_char_p)]
found = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def note(info, size, data):
    found.append(os.fsdecode(info.contents.name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "program": os.path.realpath("/proc/self/exe"),
    "objects": [path for path in found if path.startswith("/")],
    "library": os.path.dirname(os.__file__),
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "builtins": sys.builtin_module_names,
    "imports": imports,
}))
"""


class NotPortableError(Exception):
    """This machine's Python cannot run elsewhere; the message says why."""


@dataclass(frozen=True, slots=True)
class PortablePython:
    """What is packed, found out but not read yet.

    Attributes:
        program: What starts it, in the folder that it was unpacked to.
        version: Python's, as `3.11.7`.
        architecture: As container engines call it.
        files: The file of this machine by its path in the archive.
        imports: The modules that it has been seen to import.
        digest: The same for the same files.
    """

    program: ClassVar[str] = "bin/python3"
    version: str
    architecture: str
    files: tuple[tuple[str, Path], ...]
    imports: tuple[str, ...]
    digest: str

    def pack(self, folder: str) -> bytes:
        """Return a .tar.gz of all files, in a folder of that name; takes about a second, so call it in a thread.

        Raises:
            NotPortableError: It does not run from another folder.
            BackendError: This machine has no room for it, or another trouble that passes.
        """
        with _on_this_machine("this machine's Python cannot be packed"), tempfile.TemporaryDirectory() as scratch:
            top = Path(scratch)
            for name, source in self.files:
                _copy(source, top / name, library=source.suffix == ".py")
            loader = next(name for name, _ in self.files if _is_loader(name))
            program = top / self.program
            program.write_text(_START.replace("LOADER", PurePosixPath(loader).name))
            program.chmod(0o755)
            _try(program, self.imports)
            return _archive(top, folder)


@cache
def portable_python() -> PortablePython:
    """Find out what this machine's Python consists of; starts one, so call it in a thread.

    Raises:
        NotPortableError: Its parts cannot be told, or it is none of Linux.
        BackendError: It cannot be started now.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or architecture is None:
        raise NotPortableError(f"this machine is {sys.platform} on {platform.machine()}, of which none can be packed")
    command = [sys.executable, "-I", "-S", "-E", "-c", _SURVEY, json.dumps(_imports())]
    with _on_this_machine(f"{sys.executable or 'this Python'} cannot be asked what it has loaded"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise NotPortableError(f"{sys.executable} does not say what it has loaded: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout)
    files = tuple(sorted(_files(found)))
    if not any(_is_loader(name) for name, _ in files):
        raise NotPortableError(f"{sys.executable} has no dynamic loader, with which it would find its libraries")
    digest = hashlib.sha256(_FORM.encode())
    with _on_this_machine("the parts of this machine's Python cannot be looked at"):
        for name, source in files:
            about = source.stat()
            digest.update(f"{name}\0{source}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return PortablePython(found["version"], architecture, files, tuple(found["imports"]), digest.hexdigest()[:32])


@contextlib.contextmanager
def _on_this_machine(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        hint = "TMPDIR names a directory with 100 MB where programs may run; the backend's option carry_python: false"
        raise BackendError(f"{what}: {error}", hint=hint) from error


def _imports() -> list[str]:
    """Return the modules that the agent, what is sent to it, and the programs beside it import at any time."""
    names = {*_LATER, *NEEDED_LATER}
    texts = [*agent_sources().values(), PYTHON_FLAGS[-1], make_readonly_script("/", (1, 1))]
    with contextlib.suppress(UnavailableComponentError):
        texts.append(ptyprocess_source().decode())
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
    # The agent brings its own modules with it.
    return sorted(name for name in names if name not in agent_sources())


def _files(found: dict[str, list[str] | str]) -> Iterator[tuple[str, Path]]:
    library = Path(str(found["library"]))
    inside = f"lib/python{str(found['version']).rpartition('.')[0]}"
    yield "bin/python", Path(str(found["program"]))
    for path in map(Path, found["objects"]):
        # By the name that they are looked for: a link may lead to a file of another one.
        is_module = library in path.parents
        yield f"{inside}/{path.relative_to(library)}" if is_module else f"lib/{path.name}", path.resolve()
    for name in found["modules"]:
        if (library / f"{name}.py").is_file():
            yield f"{inside}/{name}.py", library / f"{name}.py"
        elif name not in found["builtins"]:
            # Whole packages: what one of their modules imports later is then there.
            for path in (library / name).rglob("*.py"):
                yield f"{inside}/{path.relative_to(library)}", path


def _is_loader(name: str) -> bool:
    # ld-linux-x86-64.so.2, ld64.so.2, ld-musl-aarch64.so.1
    folder, _, file = name.rpartition("/")
    return folder == "lib" and file.startswith("ld")


def _copy(source: Path, target: Path, *, library: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644 if library else 0o755)
    if library:
        # Taken as they are, whatever the times of the files become on their way.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(target), dfile=target.name, invalidation_mode=mode, quiet=2)


def _try(program: Path, imports: tuple[str, ...]) -> None:
    names = ", ".join(imports)
    command = [str(program), *PYTHON_FLAGS[:-1], f"import {names}; import sys; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.stdout.strip() != str(program):
        said = (done.stderr or done.stdout).strip()[-300:]
        raise NotPortableError(f"this machine's Python does not run from a folder of its own: {said}")


def _archive(top: Path, folder: str) -> bytes:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else member.mode
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        archive.add(top, arcname=folder, filter=plain)
    return buffer.getvalue()
