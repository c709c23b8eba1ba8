"""`hermes-core serve-model` as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import pytest

from hermes_core.contracts.errors import ConfigError, UserError
from hermes_core.contracts.model import Conversation, ModelRequest, ToolSchemas
from hermes_models.nop import NopModel
from hermes_models.openai import OpenAIChatClient
from hermes_models.serve_command import ServeModelCommand
from hermes_models.server import ChatServer, serving

MAIN = (
    "import argparse, sys\n"
    "from hermes_models.serve_command import ServeModelCommand\n"
    "command, parser = ServeModelCommand(), argparse.ArgumentParser()\n"
    "command.configure(parser)\n"
    "sys.exit(command.run(parser.parse_args()))"
)


def parse(*words):
    parser = argparse.ArgumentParser()
    ServeModelCommand().configure(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
