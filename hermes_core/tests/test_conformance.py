"""The core's own components pass the suites that a stranger's components pass."""

from __future__ import annotations

import shutil
from types import MappingProxyType
from typing import ClassVar

import pytest

from hermes_testing import BackendSuite, PluginSuite, ToolSuite


class TestCorePlugin(PluginSuite):
    plugin, distribution = "hermes_core.plugin", "hermes-agent-core"


class TestLocal(BackendSuite):
    plugin, component = "hermes_core.plugin", "local"


@pytest.mark.slow
class TestLocalSlots(BackendSuite):
    plugin, component = "hermes_core.plugin", "local"
    options = MappingProxyType({"slots_per_agent": 16})


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
class TestLocalInBubblewrap(BackendSuite):
    plugin, component = "hermes_core.plugin", "local"
    sandbox_fields = MappingProxyType({"isolation": "bwrap"})


class CoreTool(ToolSuite):
    plugin = "hermes_core.plugin"

    async def prepare(self, context):
        await context.write_bytes("notes.txt", b"one\ntwo\nthree\n")


class TestTerminal(CoreTool):
    component = "terminal"
    arguments: ClassVar = {"command": "wc -l < notes.txt"}
    failing = ({"command": "no-such-program"}, {"command": "sleep 600", "timeout": 1})


class TestProcess(CoreTool):
    component = "process"
    arguments: ClassVar = {"action": "list"}
    failing = ({"action": "poll", "session_id": "proc_000000000000"}, {"action": "kill"})


class TestReadFile(CoreTool):
    component = "read_file"
    arguments: ClassVar = {"path": "notes.txt", "offset": 2, "limit": 1}
    failing = ({"path": "absent.txt"}, {"path": "."})


class TestWriteFile(CoreTool):
    component = "write_file"
    arguments: ClassVar = {"path": "made/new.txt", "content": "text\n"}
    failing = ({"path": "notes.txt/below", "content": ""},)


class TestPatch(CoreTool):
    component = "patch"
    arguments: ClassVar = {"path": "notes.txt", "old_string": "two", "new_string": "2two"}
    failing = ({"path": "absent.txt", "old_string": "a", "new_string": "b"},)


class TestSearchFiles(CoreTool):
    component = "search_files"
    arguments: ClassVar = {"pattern": "two", "path": "."}
    failing = ({"pattern": "(", "path": "."}, {"pattern": "x", "path": "absent"})


class TestTodo(CoreTool):
    component = "todo"
    arguments: ClassVar = {"todos": [{"id": "1", "content": "write tests", "status": "pending"}]}


class TestTerminalStateful(CoreTool):
    component = "terminal_stateful"
    arguments: ClassVar = {"command": "wc -l < notes.txt"}
    failing = ({"command": "no-such-program"}, {"command": "sleep 600", "timeout": 1}, {"command": "echo 'open"})


class TestTmux(CoreTool):
    component = "tmux"
    arguments: ClassVar = {"action": "send_keys", "keys": ["wc -l < notes.txt", "Enter"], "block": True}
    failing = ({"action": "stream"}, {"action": "capture"}, {"action": "send_keys"})
