from __future__ import annotations

import itertools
import json
import random

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from hermes_core.contracts.tool import ToolResult
from hermes_sandbox import open_sandbox
from hermes_tokens import AppendRule, ChatTokenizer, prove_template
from hermes_tools import ReadFileTool
from tiny_rl.model import tokenizer
from tiny_rl.tasks import COLOURS, demonstration, tasks, tool_answer

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}}
TOOLS = ({"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": PARAMETERS}},)


def conversations(count):
    chance = random.Random(0)
    return [demonstration(task, chance) for task in itertools.islice(tasks("train", 0), count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    texts = (tokenizer.render(messages, TOOLS) for messages in conversations(300))
    tokenizer.save(tokenizer.train(texts, COLOURS), folder)
    return folder


def test_the_folder_is_one_that_the_framework_reads_and_proves(folder):
    chat = ChatTokenizer.load(folder)
    prove_template(AppendRule(chat, tools=TOOLS)).require()
    assert chat.stop_ids == frozenset(tokenizer.stop_ids(folder))


def test_what_is_learned_from_is_what_the_template_writes(folder):
    chat, coder = ChatTokenizer.load(folder), tokenizer.load(folder)
    for messages in conversations(20):
        text = tokenizer.render(messages, TOOLS)
        assert chat.template(TOOLS).render(messages, tools=TOOLS, add_generation_prompt=False) == text
        assert coder.decode(coder.encode(text).ids, skip_special_tokens=False) == text


def test_a_conversation_is_short_and_every_choice_a_token_of_its_own(folder):
    coder = tokenizer.load(folder)
    for messages in conversations(50):
        assert len(coder.encode(tokenizer.render(messages, TOOLS))) < 160
    for colour in COLOURS:
        tokens = coder.encode(f'{{"path": "{colour}.txt"}}').tokens
        assert colour in tokens


def test_digits_are_copied_one_by_one(folder):
    assert tokenizer.load(folder).encode("code 4821").tokens[-4:] == ["4", "8", "2", "1"]


@pytest.mark.parametrize("text", ["code 4821\n", "see gold\n"])
async def test_demonstrations_show_what_the_real_tool_answers(text):
    class Context:
        def __init__(self, sandbox):
            self.sandbox = sandbox

    async with open_sandbox("local") as sandbox:
        await sandbox.write_file("red.txt", text)
        answer = await ReadFileTool().call({"path": "red.txt"}, Context(sandbox))
    assert isinstance(answer, ToolResult)
    assert json.loads(answer.content)["path"] == "red.txt"
    assert answer.content == tool_answer("red.txt", text)
