"""`hermes-core serve-model` as a separate process."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys

import pytest

from hermes_core.contracts.errors import ConfigError, UserError
from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_core.discovery import PluginSettings
from hermes_models.clients.openai import OpenAIChatClient
from hermes_models.embedded.nop import NopModel
from hermes_models.serving.command import ServeModelCommand
from hermes_models.serving.server import ChatServer, serving

MAIN = (
    "import argparse, signal, sys\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup
    "from hermes_models.serving.command import ServeModelCommand\n"
    "command, parser = ServeModelCommand(), argparse.ArgumentParser()\n"
    "command.configure(parser)\n"
    "sys.exit(command.run(parser.parse_args()))"
)


def parse(*words):
    parser = argparse.ArgumentParser()
    ServeModelCommand().configure(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_says_where_it_listens_serves_and_ends_cleanly_on_a_signal(number):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, "nop", "--api-key-env", "SERVE_KEY",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "SERVE_KEY": "k"},
    )  # fmt: skip
    line = (await process.stdout.readline()).decode()
    assert line.startswith("listening on http://127.0.0.1:")
    client = OpenAIChatClient(base_url=line.split()[-1], model_name="nop", api_key="k")
    await client.check()
    talk = Conversation([{"role": "user", "content": "hi"}])
    assert (await client.chat(ModelRequest(conversation=talk, tools=ToolSchemas()))).content == "Nothing was done."
    await client.aclose()
    process.send_signal(number)
    rest, complaints = await process.communicate()
    assert (process.returncode, rest, complaints) == (0, b"", b"")


def test_the_oracle_needs_tasks():
    with pytest.raises(ConfigError, match="--tasks FILE"):
        ServeModelCommand().run(parse("oracle"))


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"id": "t", "prompt": "Say it.", "solution": [], "answer": "it"}) + "\n{\n")
    return path


async def test_the_oracle_follows_the_solutions_of_a_task_file_and_reports_skipped_tasks(tasks):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, "oracle", "--tasks", str(tasks), "--mistake-rate", "0",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HERMES_PLUGINS": "hermes-runner"},
    )  # fmt: skip
    try:
        line = (await process.stdout.readline()).decode()
        client = OpenAIChatClient(base_url=line.split()[-1], model_name="oracle")
        talk = Conversation([{"role": "user", "content": "Say it."}])
        reply = await client.chat(ModelRequest(conversation=talk, tools=ToolSchemas()))
        await client.aclose()
    finally:
        process.send_signal(signal.SIGTERM)
        _, complaints = await process.communicate()
    assert reply.content == "it"
    assert f"task skipped: {tasks}:2: not JSON" in complaints.decode()
    assert process.returncode == 0


def test_a_missing_package_for_task_files_is_named(tasks):
    arguments = parse("oracle", "--tasks", str(tasks))
    arguments.plugin_settings = PluginSettings(allow=("hermes-models",))
    with pytest.raises(ConfigError, match=r"hermes-runner has it, and is .*; admit hermes-runner"):
        ServeModelCommand().run(arguments)


def test_a_key_variable_must_be_set():
    with pytest.raises(ConfigError, match="HERMES_NO_SUCH_VARIABLE"):
        ServeModelCommand().run(parse("nop", "--api-key-env", "HERMES_NO_SUCH_VARIABLE"))


def test_a_port_that_does_not_exist_is_said():
    with pytest.raises(UserError, match=r"cannot listen on 127\.0\.0\.1:70000"):
        ServeModelCommand().run(parse("nop", "--port", "70000"))


async def test_a_taken_port_is_said_with_what_to_type():
    async with serving(ChatServer(NopModel(), model_name="nop")) as url:
        port = url.split(":")[2].split("/")[0]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MAIN, "nop", "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, complaints = await process.communicate()
    assert process.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in complaints.decode()
    assert "--port 0" in complaints.decode()
