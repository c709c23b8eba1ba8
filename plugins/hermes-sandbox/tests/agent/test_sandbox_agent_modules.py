"""The agent's modules: what they may use, and that each stays what it is in the sandbox."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec

import pytest
from slot_agents import agent, open_slot, out

from hermes_sandbox.agent import operations
from hermes_sandbox.agent.boot.importer import Importer
from hermes_sandbox.agent.operations import Operations
from hermes_sandbox.agent.wire import PROTOCOL, Decoder, encode
from hermes_sandbox.backends import PYTHON_FLAGS
from hermes_sandbox.protocol import bootstrap
from hermes_sandbox.protocol.bootstrap import agent_message, agent_sources

MODULES = [name for name in agent_sources() if name.startswith("hermes_sandbox.agent.")]
HELLO = encode({"id": 1, "op": "hello", "marker": "m", "limits": {}})
COSTLY = {
    "collections",
    "contextlib",
    "ctypes",
    "enum",
    "functools",
    "json",
    "pathlib",
    "re",
    "signal",
    "socket",
    "typing",
}
IMPORT_EACH_ALONE = """
import json, sys
texts = json.load(sys.stdin)
own = {"__name__": "importer"}
exec(texts["hermes_sandbox.agent.boot.importer"], own)
for name in texts:
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "Importer"]
    for other in texts:
        sys.modules.pop(other, None)
    own["install_importer"](dict(texts))
    __import__(name)
    print(name)
"""


@pytest.fixture(params=["code", "texts"])
def form(request, monkeypatch):
    """In both ways that the modules may arrive."""
    if request.param == "texts":
        monkeypatch.setattr(bootstrap, "MAGIC_NUMBER", b"none")
    bootstrap._message.cache_clear()
    yield request.param
    bootstrap._message.cache_clear()


def test_the_modules_sent_are_those_of_the_folder():
    assert {"hermes_sandbox", "hermes_sandbox.agent", "hermes_sandbox.agent.commands"} < agent_sources().keys()
    assert {"hermes_sandbox.agent.server", "hermes_sandbox.agent.commands.live"} < set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_agent_is_one_of_python_3_8(name):
    tree = ast.parse(agent_sources()[name], feature_version=(3, 8))
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Match)] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_agent_imports_the_standard_library_and_the_agent_alone(name):
    tree = ast.parse(agent_sources()[name])
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {each.partition(".")[0] for each in names - agent_sources().keys()} <= sys.stdlib_module_names


def test_each_module_of_the_agent_is_imported_without_the_others():
    command = [sys.executable, "-I", "-S", "-E", "-c", IMPORT_EACH_ALONE]
    given = json.dumps(dict(agent_sources()))
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == ([*agent_sources()], "")


def test_two_modules_may_use_one_name():
    importer = Importer({"it": "", "it.first": "NAME = 1\ndef tell(): return NAME", "it.second": "NAME = 2"})
    first, second = (load(importer, name) for name in ("it.first", "it.second"))
    assert (first.NAME, first.tell(), second.NAME, hasattr(second, "tell")) == (1, 1, 2, False)


async def test_an_agent_imports_nothing_costly_before_the_end_of_its_first_command(tmp_path):
    with (tmp_path / "errors").open("wb") as errors:
        async with agent("-X", "importtime", stderr=errors) as client:
            slot = await open_slot(client, tmp_path, session="live")
            assert await out(slot, "echo hi") == "hi\n"
            await slot.aclose()
    lines = (tmp_path / "errors").read_text().splitlines()
    imports = {line.rpartition("|")[2].strip() for line in lines}
    assert "hermes_sandbox.agent.commands.command_queue" in imports
    assert imports & COSTLY == set()


@pytest.mark.parametrize("name", operations.MODULES)
def test_an_operation_is_looked_for_in_the_module_that_implements_it(name):
    module = import_module(f"hermes_sandbox.agent.{name}")
    tables = [getattr(module, kind, {}) for kind in ("CALLS", "STREAMS", "WAITS", "UPLOADS")]
    assert sorted(operation for table in tables for operation in table) == sorted(operations.MODULES[name])


def test_a_module_that_could_not_be_imported_once_is_tried_again(monkeypatch):
    known = Operations()
    monkeypatch.setitem(sys.modules, "hermes_sandbox.agent.tunnels", None)
    with pytest.raises(ImportError):
        known.load("tunnel_data")
    monkeypatch.delitem(sys.modules, "hermes_sandbox.agent.tunnels")
    known.load("tunnel_data")
    assert {"tunnel_listen", "tunnel_data"} <= known.calls.keys()
    importer = Importer({"it": "import sys\nif not hasattr(sys, 'may_load'): raise MemoryError"})
    with pytest.raises(MemoryError):
        load(importer, "it")
    monkeypatch.setattr(sys, "may_load", True, raising=False)
    load(importer, "it")
    assert importer.find_spec("it") is None


def load(importer, name):
    """Import a module without telling anyone else of it."""
    module = module_from_spec(importer.find_spec(name))
    importer.exec_module(module)
    return module


def run_agent(*flags, **options):
    """Start an agent, greet it, end it, and return what it has answered and what it has written besides."""
    command = [sys.executable, *flags]
    given = agent_message() + HELLO
    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False, **options)
    return [header for header, _ in Decoder().feed(done.stdout)], done.stderr.decode()


def test_what_lies_in_the_sandbox_is_not_taken_for_a_module_of_the_agent(tmp_path, form):
    package = tmp_path / "hermes_sandbox"
    for name in agent_sources():
        path = tmp_path / name.replace(".", "/")
        path.mkdir(parents=True, exist_ok=True)
        (path / "__init__.py").write_text(f"raise SystemExit('{package} is taken for {name}')")
    # Without the flags that keep Python from looking there at all.
    answers, errors = run_agent(*PYTHON_FLAGS[3:], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ([answer["ok"]["protocol"] for answer in answers], errors) == ([PROTOCOL], "")


def test_a_traceback_names_the_module_and_the_line(monkeypatch, form):
    name = "hermes_sandbox.agent.commands.live"
    text = agent_sources()[name]
    spoilt = {**agent_sources(), name: f"{text}\nraise RuntimeError('spoilt')\n"}
    monkeypatch.setattr(bootstrap, "agent_sources", lambda: spoilt)
    answers, errors = run_agent(*PYTHON_FLAGS)
    assert answers == []
    assert f'File "<hermes-agent commands/live.py>", line {text.count(chr(10)) + 2}, in <module>' in errors
    assert errors.endswith("RuntimeError: spoilt\n")
