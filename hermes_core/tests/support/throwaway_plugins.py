"""Distributions that exist for one test: metadata and modules as an installer leaves them, in a folder on the path."""

from __future__ import annotations

import json
import textwrap
import uuid
from dataclasses import dataclass, field
from pathlib import Path

HEADER = "from hermes_core import hookimpl\nfrom hermes_core.specs import *\n"


@dataclass
class Site:
    """A folder of installed distributions. Module names get a suffix, so that tests never meet in `sys.modules`."""

    folder: Path
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def module(self, name):
        return f"{name}_{self.suffix}"

    def write(self, name, source):
        """Write a module and return its real name; SELF in the source becomes that name."""
        module = self.module(name)
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source).replace("SELF", module))
        return module

    def install(self, distribution, source="", *, entry=None, version="1.0", files=None, value=None):
        """Install a distribution with one plugin module and return the id of the plugin."""
        entry = entry or distribution.rpartition("-")[2]
        module = self.write(distribution.replace("-", "_").replace(".", "_"), HEADER + textwrap.dedent(source))
        self.metadata(distribution, {entry: value or module}, version=version, files=files)
        return f"{distribution.lower()}:{entry}"

    def metadata(self, distribution, entry_points, *, version="1.0", files=None, folder=None):
        info = (folder or self.folder) / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
            "entry_points.txt": f"[hermes_core.plugins]\n{lines}",
            "RECORD": f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n",
            **(files or {}),
        }
        for name, text in texts.items():
            (info / name).write_text(text if isinstance(text, str) else json.dumps(text))
        return info


def backend(name="docker", target="SELF:Backend", **fields):
    """Return the source of a plugin that declares one backend and has a class for it."""
    return f"""
    @hookimpl
    def hermes_backends():
        return [BackendSpec(name={name!r}, summary="A backend.", target={target!r}, **{fields!r})]

    class Backend:
        async def check(self, spec): ...
        async def open(self, spec): ...
        async def aclose(self): ...
    """


def verifier(name="exact", body="pass", **fields):
    """Return the source of a plugin that declares one verifier; `body` is the body of its class besides `score`."""
    return f"""
    @hookimpl
    def hermes_verifiers():
        return [VerifierSpec(name={name!r}, summary="A verifier.", target="SELF:Verifier", **{fields!r})]

    class Verifier:
        {body}
        def score(self, result, context): ...
    """
