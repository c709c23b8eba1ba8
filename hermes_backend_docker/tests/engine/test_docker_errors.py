"""An engine that is missing, forbidden or another server: a typed error with a hint."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiodocker.exceptions import DockerError
from pydantic import ValidationError
from relay import serve_connections, to_the_engine

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.engine.address import find_address
from hermes_backend_docker.engine.failures import (
    ContainerGoneError,
    EngineDeniedError,
    EngineError,
    EngineTimeoutError,
    EngineUnreachableError,
    ImageMissingError,
    NameConflictError,
    NoSpaceError,
    from_docker,
)
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import BackendError, ConfigError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.servers import closed_port

ASK = SandboxSpec(isolation="container", network="none")


async def _complaint(tmp_path: Path, **options: Any) -> BackendError:
    made = DockerBackend(DockerOptions(**options))
    made.lease_dir = tmp_path / "leases"
    try:
        with pytest.raises(BackendError) as caught:
            await made.check(ASK)
    finally:
        await made.aclose()
    # A lease of a container that was never created would stay without end.
    assert list((tmp_path / "leases").glob("*")) == []
    return caught.value


async def test_an_engine_that_does_not_run_is_named_with_how_to_start_it(tmp_path: Path) -> None:
    error = await _complaint(tmp_path, docker_host=f"unix://{tmp_path}/none.sock")
    assert isinstance(error, EngineUnreachableError)
    assert f"{tmp_path}/none.sock" in error.message
    assert "systemctl start docker" in (error.hint or "")


async def test_a_host_without_a_listener_is_named_with_the_option(tmp_path: Path) -> None:
    with closed_port() as port:
        error = await _complaint(tmp_path, docker_host=f"tcp://127.0.0.1:{port}")
    assert isinstance(error, EngineUnreachableError)
    assert str(port) in error.message
    assert "docker_host" in (error.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become another user")
async def test_a_socket_that_this_user_may_not_open_says_which_group(open_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(open_folder / "engine.sock"))
        (open_folder / "engine.sock").chmod(0o600)
        listener.listen()
        os.seteuid(65534)
        error = await _complaint(open_folder, docker_host=f"unix://{open_folder}/engine.sock")
    assert isinstance(error, EngineDeniedError)
    assert error.fatal
    assert "usermod -aG docker" in (error.hint or "")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, and the way back to this user."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        os.seteuid(0)


async def test_another_server_at_the_address_is_not_taken_for_an_engine(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = b'{"ApiVersion": "1.41"}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(text) + text)
        await writer.drain()

    async with serve_connections(answer) as host:
        error = await _complaint(tmp_path, docker_host=host)
    assert isinstance(error, EngineUnreachableError)
    assert "expected a Docker engine at" in error.message


async def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve_connections(say_nothing) as host:
        error = await _complaint(tmp_path, docker_host=host, engine_timeout=0.3)
    assert isinstance(error, EngineTimeoutError)
    assert "0.3 s" in error.message


async def test_an_engine_that_breaks_off_is_unreachable(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with serve_connections(hang_up) as host:
        error = await _complaint(tmp_path, docker_host=host)
    assert isinstance(error, EngineError)
    assert host in error.message


@pytest.mark.parametrize("address", ["ssh://somewhere", "npipe:////./pipe/docker_engine", "here", "tcp://", "unix://"])
def test_an_address_of_unknown_form_is_refused_with_the_known_ones(address: str) -> None:
    with pytest.raises(ConfigError, match="tcp://HOST:2375"):
        find_address(address)


def test_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        find_address(
            None, None, {"DOCKER_HOST": "tcp://far:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
        )


@pytest.mark.parametrize(
    ("option", "environ", "found"),
    [
        (None, {}, "unix:///var/run/docker.sock"),
        (None, {"DOCKER_HOST": "tcp://far:99"}, "http://far:99"),
        ("tcp://near", {"DOCKER_HOST": "tcp://far:99"}, "http://near:2375"),
    ],
)
def test_the_option_wins_over_the_environment(option: str | None, environ: dict[str, str], found: str) -> None:
    assert find_address(option, None, environ).url == found


@pytest.mark.parametrize(
    "options",
    [
        {"user": "agent"},
        {"user": "-1"},
        {"workspace": "here"},
        {"workspace": "/"},
        {"imagge": "x"},
        {"volumes": ["here"]},
        {"pids": 1},
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DockerOptions(**options)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (500, "write /var/lib/docker/tmp/x: no space left on device", NoSpaceError),
        (404, "No such container: abc", ContainerGoneError),
        (409, "removal of container abc is already in progress", ContainerGoneError),
        (404, "No such image: abc:1", ImageMissingError),
        (500, "whatever else", EngineError),
    ],
)
def test_what_an_engine_says_is_told_apart(status: int, text: str, kind: type[BackendError]) -> None:
    error = from_docker(DockerError(status, text), "it cannot be done", find_address(None, None, {}))
    assert type(error) is kind
    assert error.message == f"it cannot be done: the engine says: {text}"


@pytest.mark.component("docker")
async def test_an_engine_is_used_over_tcp(tmp_path: Path, image: str) -> None:
    async with serve_connections(to_the_engine) as host:
        made = DockerBackend(DockerOptions(docker_host=host, image=image, pull="never"))
        made.lease_dir = tmp_path
        try:
            async with await made.open(ASK) as sandbox:
                assert (await sandbox.exec("echo far")).output == "far\n"
        finally:
            await made.aclose()


@pytest.mark.component("docker")
async def test_an_image_that_is_missing_is_named_with_the_line_that_brings_it(tmp_path: Path) -> None:
    error = await _complaint(tmp_path, image="nobody/has-this:1", pull="never")
    assert isinstance(error, ImageMissingError)
    assert error.hint == "docker pull nobody/has-this:1"


@pytest.mark.component("docker")
async def test_an_image_that_cannot_be_pulled_says_what_the_registry_said(tmp_path: Path) -> None:
    with closed_port() as port:
        error = await _complaint(tmp_path, image=f"127.0.0.1:{port}/nobody:1", pull="missing")
    assert isinstance(error, ImageMissingError)
    assert "connection refused" in error.message
    assert f"docker pull 127.0.0.1:{port}/nobody:1" in (error.hint or "")


@pytest.mark.component("docker")
async def test_an_image_without_python_says_what_to_set(tmp_path: Path, image: str) -> None:
    error = await _complaint(tmp_path, image=image, pull="never", python="/no/python")
    assert "/no/python" in error.message
    assert "option python" in (error.hint or "")


@pytest.mark.component("docker")
async def test_a_program_that_is_not_python_is_quoted(tmp_path: Path, image: str) -> None:
    error = await _complaint(tmp_path, image=image, pull="never", python="/usr/bin/ls")
    assert re.search(r"the agent in container \w{12} did not start", error.message)
    assert "/usr/bin/ls: invalid option" in error.message


@pytest.mark.component("docker")
async def test_a_name_that_is_taken_says_by_whom_to_ask(backend: DockerBackend) -> None:
    taken = secrets.token_hex(8)
    host = await backend.create(ASK, taken)
    try:
        with pytest.raises(NameConflictError, match=f"hermes-{taken}") as caught:
            await backend.create(ASK, taken)
        assert "docker rm -f" in (caught.value.hint or "")
    finally:
        await host.stop_all()
        await host.destroy()


@pytest.mark.component("docker")
async def test_a_runtime_that_the_engine_has_not_is_refused_with_what_to_install(tmp_path: Path, image: str) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", runtime="runsc-of-nobody"))
    made.lease_dir = tmp_path
    try:
        with pytest.raises(SandboxRefusedError, match=r"no runtime 'runsc-of-nobody'; it has .*runc") as caught:
            await made.check(SandboxSpec(isolation="gvisor", network="none"))
    finally:
        await made.aclose()
    assert "gvisor.dev" in (caught.value.hint or "")


@pytest.mark.component("docker")
async def test_another_runtime_does_not_pass_for_gvisor(tmp_path: Path, image: str) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", runtime="runc"))
    made.lease_dir = tmp_path
    try:
        with pytest.raises(SandboxRefusedError, match="got 'runc'"):
            await made.check(SandboxSpec(isolation="gvisor", network="none"))
        await made.check(ASK)
    finally:
        await made.aclose()


@pytest.mark.component("docker")
async def test_a_disk_that_does_not_fit_into_the_memory_is_refused(backend: DockerBackend) -> None:
    with pytest.raises(SandboxRefusedError, match="a limited disk is in memory") as caught:
        await backend.check(SandboxSpec(isolation="container", network="none", memory_mb=64, disk_mb=64))
    assert "memory_mb above disk_mb" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "address",
    ["tcp://me:s3cret@far:1", "ssh://me:s3cret@far", "me:s3cret@far", "tcp://me:s3cret/x@far", "tcp://me:s3cret@[far"],
)
def test_a_password_in_the_engine_s_address_is_in_nothing_that_is_said(address):
    try:
        said = find_address(address, None, {}).shown
    except ConfigError as error:
        said = f"{error} {error.__cause__}"
    assert ("far" in said, "s3cret" in said) == (True, False)
