"""Acme's components pass the suites that every component of hermes-core passes."""

from __future__ import annotations

import json
from typing import ClassVar

from hermes_testing import BackendSuite, ParserSuite, PluginSuite, ToolSuite, VerifierSuite


class TestPlugin(PluginSuite):
    plugin = "acme_hermes.plugin"
    distribution = "acme-hermes"


class TestFenceParser(ParserSuite):
    plugin, component = "acme_hermes.plugin", "acme_fence"
    block_marks = (("```tool\n", "\n```"),)
    lacks: ClassVar = {
        "early_events": "it knows complete texts only",
        "block_ends": "three backticks behind a fence begin another one",
    }

    def wire(self, calls, content=""):
        blocks = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
        return (content + "\n" if content else "") + "".join(f"```tool\n{block}\n```\n" for block in blocks)


class TestNicedBackend(BackendSuite):
    plugin, component = "acme_hermes.plugin", "acme_niced"


class TestJsonQuery(ToolSuite):
    plugin, component = "acme_hermes.plugin", "acme_json_query"
    arguments: ClassVar = {"path": "data.json", "query": "users.0.name"}
    failing = ({"path": "absent.json", "query": "a"}, {"path": "data.json", "query": "users.7"})

    async def prepare(self, context):
        await context.write_bytes("data.json", b'{"users": [{"name": "Ada"}]}')


class TestWordCount(ToolSuite):
    plugin, component = "acme_hermes.plugin", "acme_word_count"
    arguments: ClassVar = {"path": "text.txt"}
    failing = ({"path": "absent.txt"},)

    async def prepare(self, context):
        await context.write_bytes("text.txt", b"one two\nthree\n")


class TestWordCountWithOptions(TestWordCount):
    options: ClassVar = {"min_letters": 4}

    async def test_it_counts_only_words_of_that_length(self, runtime, context):
        result = await self.call(runtime, context)
        assert json.loads(result.content)["words"] == 1


class TestWordOverlap(VerifierSuite):
    plugin, component = "acme_hermes.plugin", "acme_word_overlap"
    options: ClassVar = {"reference": "the quick brown fox", "path": "answer.txt"}

    async def solve(self, context):
        await context.write_bytes("answer.txt", b"The quick brown fox\n")
        return "done"
