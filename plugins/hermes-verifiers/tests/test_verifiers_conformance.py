"""The plugin and its verifiers pass the suites that every plugin passes."""

from __future__ import annotations

from typing import ClassVar

from hermes_testing import PluginSuite, VerifierSuite

PLUGIN = "hermes_verifiers.plugin"
TEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_made(self):\n        open('made').close()\n"


class TestPlugin(PluginSuite):
    plugin = PLUGIN
    distribution = "hermes-verifiers"


class OnFile(VerifierSuite):
    """For verifiers that look for the file `made`."""

    plugin = PLUGIN

    async def solve(self, context):
        await context.write_bytes("made", b"42\n")
        return "42"


class TestExitCode(OnFile):
    component = "exit_code"
    options: ClassVar = {"command": "test -e made"}


class TestFileContent(OnFile):
    component = "file_content"
    options: ClassVar = {"checks": [{"path": "made", "equals": "42"}]}


class TestHiddenTests(OnFile):
    component = "pytest"
    options: ClassVar = {"runner": "unittest", "files": {"test_made.py": TEST}}


class TestScript(OnFile):
    component = "script"
    options: ClassVar = {
        "script": 'read -r nonce; echo "$nonce made $([ -e made ] && echo 1 || echo 0)"',
        "reward": "report",
    }


class TestExactMatch(OnFile):
    component = "exact_match"
    options: ClassVar = {"expected": "42"}


class TestRegexMatch(OnFile):
    component = "regex_match"
    options: ClassVar = {"pattern": r"^\d+$"}


class TestNumericMatch(OnFile):
    component = "numeric_match"
    options: ClassVar = {"expected": 42, "file": "made"}


class TestJsonSchema(OnFile):
    component = "json_schema"
    options: ClassVar = {"schema": {"type": "integer"}}
