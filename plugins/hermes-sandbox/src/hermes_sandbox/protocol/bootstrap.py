"""The agent's modules as one message, and the loader that receives it."""

from __future__ import annotations

import marshal
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.abc import InspectLoader
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType
from typing import Final

from hermes_sandbox.agent.boot.importer import file_name
from hermes_sandbox.agent.boot.loader import LOADER, ZYGOTE_LOADER

_COMPILING: Final = threading.Lock()
_FORMAT_OF_ALL: Final = 2
"""The version of marshal that every Python since 3.4 reads."""

PYTHON_FLAGS: Final = ("-I", "-S", "-E", "-u", "-c", LOADER)
"""Arguments that make any Python 3.8 or newer wait for the agent on its standard input."""

ZYGOTE_FLAGS: Final = (*PYTHON_FLAGS[:-1], ZYGOTE_LOADER)
"""Arguments with which a Python becomes a zygote once it has got the agent, see `hermes_sandbox.agent.boot.zygote`."""


@cache
def agent_sources() -> Mapping[str, str]:
    """Return the texts of the agent's modules and of their packages, by name."""
    # The other modules of the topmost package are only for this side.
    return {"hermes_sandbox": "", **dict(_sources(resources.files("hermes_sandbox.agent"), "hermes_sandbox.agent"))}


def _sources(folder: Traversable, package: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry, f"{package}.{entry.name}")
        elif entry.name.endswith(".py") and entry.name[:-3].isidentifier():  # not what an editor left
            name = f"{package}.{entry.name[:-3]}"
            yield name.removesuffix(".__init__"), entry.read_text(encoding="utf-8")


def agent_message() -> bytes:
    """Return the first message to the loader; the first call compiles the agent, so call it in a thread."""
    with _COMPILING:
        return _message()


@cache
def _message() -> bytes:
    sources = agent_sources()
    codes = {name: marshal.dumps(_code_of(name, text)) for name, text in sources.items()}
    code, texts = marshal.dumps(codes), marshal.dumps(dict(sources), _FORMAT_OF_ALL)
    version = f"{sys.implementation.cache_tag} {MAGIC_NUMBER.hex()}"
    return b"%08x%08x" % (len(code), len(texts)) + version.encode().ljust(32) + code + texts


def _code_of(name: str, text: str) -> CodeType:
    """Return a module's code; to compile all of them would be a seventh of the time in which a run starts."""
    found = find_spec(name)
    loader = None if found is None else found.loader
    if isinstance(loader, InspectLoader) and loader.get_source(name) == text:
        code = loader.get_code(name)  # from the byte code beside the file
        if code is not None:
            return _with_file_name(code, file_name(name))
    return compile(text, file_name(name), "exec", dont_inherit=True)


def _with_file_name(code: CodeType, name: str) -> CodeType:
    """Return code with another file name in tracebacks, that of its functions too."""
    inner = tuple(_with_file_name(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=inner)
