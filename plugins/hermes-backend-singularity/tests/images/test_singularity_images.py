"""Images of every kind of source, built by the real program and cached."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import small_images
from watched import at_work

from hermes_backend_singularity.backend import SingularityBackend
from hermes_backend_singularity.images.sources import Source
from hermes_backend_singularity.options import SingularityOptions
from hermes_backend_singularity.runtime.failures import ImageError, ImageTimeoutError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_testing.watching import TooSoon, eventually, processes_here, sleep_token, with_more_time

pytestmark = pytest.mark.component("apptainer")


def _ask(**fields):
    return SandboxSpec(isolation="container", network="none", **fields)


def _cached_images(options):
    return sorted(Path(options["cache_dir"], "images").glob("*"))


@pytest.fixture
async def new_backend(options, tmp_path):
    """Makes backends with further options, which are closed after the test."""
    made = []

    def open_backend(**more):
        backend = SingularityBackend(SingularityOptions(**{**options, **more}))
        backend.lease_dir = tmp_path / "leases"
        made.append(backend)
        return backend

    yield open_backend
    for backend in made:
        await backend.aclose()


async def test_a_docker_archive_is_built_once_and_brings_its_variables(backend, options):
    image = f"docker-archive:{small_images.archive()}"
    for _ in range(2):
        async with await backend.open(_ask(image=image)) as sandbox:
            assert (await sandbox.exec("echo $FROM_IMAGE; id -u")).output == "yes\n1000\n"
            assert sandbox.provenance["agent"] == "sh"
    [kept] = _cached_images(options)
    assert json.loads((kept / "entry.json").read_bytes())["source"].startswith("docker-archive:")
    assert list(Path(options["cache_dir"], "building").iterdir()) == []


async def test_an_archive_with_other_content_is_another_image(backend, options, tmp_path):
    copy = tmp_path / "copy.tar"
    for content in (small_images.archive().read_bytes(), small_images.archive().read_bytes() + bytes(512)):
        copy.write_bytes(content)
        await (await backend.open(_ask(image=f"docker-archive:{copy}"))).aclose()
    assert len(_cached_images(options)) == 2


@pytest.mark.slow
async def test_a_definition_file_is_built_in_its_own_folder_and_again_if_a_copied_file_changes(
    backend, options, tmp_path
):
    definition = tmp_path / "task.def"
    definition.write_text(
        f"Bootstrap: docker-archive\nFrom: {small_images.archive()}\n\n%files\n    data.txt /data.txt\n"
    )
    for content in ("one\n", "two, longer\n"):
        (tmp_path / "data.txt").write_text(content)
        async with await backend.open(_ask(image=str(definition))) as sandbox:
            assert (await sandbox.exec("cat /data.txt")).output == content
    assert len(_cached_images(options)) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="mksquashfs is not installed (squashfs-tools)")
async def test_an_image_can_be_kept_as_a_file(new_backend, options):
    backend = new_backend(cache_format="sif", build_options=["--mksquashfs-args", "-comp gzip -Xcompression-level 1"])
    async with await backend.open(_ask(image=f"docker-archive:{small_images.archive()}")) as sandbox:
        assert (await sandbox.exec("echo works > f && cat f")).output == "works\n"
    [kept] = _cached_images(options)
    # A SIF file is also an image by its path.
    async with await backend.open(_ask(image=str(kept / "image.sif"))) as sandbox:
        assert (await sandbox.exec("cat f 2>/dev/null || echo fresh")).output == "fresh\n"


@pytest.mark.component("docker")
async def test_an_image_of_the_docker_engine_is_kept_by_its_id(backend, options):
    name = "hermes-singularity-test:1"
    await asyncio.to_thread(small_images.run, "docker", "load", "-i", small_images.archive())
    await asyncio.to_thread(small_images.run, "docker", "tag", "plain:1", name)
    try:
        async with await backend.open(_ask(image=f"docker-daemon:{name}")) as sandbox:
            assert (await sandbox.exec("echo $FROM_IMAGE")).output == "yes\n"
            shown = ["docker", "image", "inspect", "--format", "{{.Id}}", name]
            found = await asyncio.to_thread(subprocess.run, shown, capture_output=True, text=True, check=True)
            assert sandbox.provenance["image_id"] == found.stdout.strip()
    finally:
        await asyncio.to_thread(small_images.run, "docker", "rmi", name, "plain:1")


async def test_an_error_about_an_image_that_the_engine_lacks_has_the_next_step(backend):
    with pytest.raises(ImageError, match=r"nosuch:1 (is not on|is not available)"):
        await backend.open(_ask(image="docker-daemon:nosuch:1"))


async def test_an_error_about_a_registry_that_does_not_answer_has_the_reason(backend, options):
    with pytest.raises(ImageError, match=r"(?s)docker://localhost:1/x/y:1 cannot be built: .*refused"):
        await backend.open(_ask(image="docker://localhost:1/x/y:1"))
    assert _cached_images(options) == []
    assert list(Path(options["cache_dir"], "building").iterdir()) == []


async def test_with_pull_never_an_image_that_is_not_cached_is_an_error(new_backend):
    with pytest.raises(ImageError, match="is not in the cache"):
        await new_backend(pull="never").open(_ask(image="python:3.12"))


async def test_a_build_that_takes_too_long_is_killed_with_all_it_started(new_backend, options, tmp_path):
    definition, token = tmp_path / "slow.def", sleep_token()
    definition.write_text(
        f"Bootstrap: docker-archive\nFrom: {small_images.archive()}\n\n"
        f"%setup\n    touch {tmp_path}/begun\n    sleep {token}\n"
    )

    async def is_killed(seconds):
        (tmp_path / "begun").unlink(missing_ok=True)
        backend = new_backend(build_timeout=seconds)
        try:
            with pytest.raises(ImageTimeoutError, match=rf"not built within {re.escape(f'{seconds:g}')} s"):
                await backend.open(_ask(image=str(definition)))
        finally:
            await backend.aclose()
        TooSoon.unless((tmp_path / "begun").exists(), "the build had not started anything")

    await with_more_time(is_killed)
    assert list(Path(options["cache_dir"], "building").iterdir()) == []
    assert processes_here(token) == []


async def test_a_failing_build_shows_the_end_of_its_log(backend, tmp_path):
    definition = tmp_path / "broken.def"
    setup = "%setup\n    printf 'caf\\351 is gone\\n'; exit 7\n"
    definition.write_text(f"Bootstrap: docker-archive\nFrom: {small_images.archive()}\n\n{setup}")
    with pytest.raises(ImageError, match=r"(?s)broken\.def cannot be built: .*is gone"):
        await backend.open(_ask(image=str(definition)))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.sif", None, "does not exist"),
        ("text.sif", b"not an image at all", "neither a SIF nor a definition"),
        ("empty.sif", b"", "neither a SIF nor a definition"),
        ("bare", "directory", r"no \.singularity\.d"),
    ],
)
async def test_a_path_that_is_not_an_image_is_refused_with_the_reason(backend, tmp_path, name, content, said):
    path = tmp_path / name
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=said) as caught:
        await backend.open(_ask(image=str(path)))
    assert caught.value.hint


async def test_a_damaged_sif_is_an_error_of_the_image(backend, tmp_path):
    damaged = tmp_path / "damaged.sif"
    damaged.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(4096))
    with pytest.raises(ImageError, match=r"damaged\.sif cannot be started"):
        await backend.open(_ask(image=str(damaged)))


_BUILDER = """
import asyncio, json, sys
from pathlib import Path
from hermes_backend_singularity.backend import SingularityBackend, SingularityOptions

async def main():
    options = json.loads(sys.argv[1])
    backend = SingularityBackend(SingularityOptions(**options))
    program = await backend._find_program()
    image = await backend.images.ready(sys.argv[2], program)
    print(image.path, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def _builder(options, image):
    given = json.dumps({name: str(value) for name, value in options.items()})
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", _BUILDER, given, image], stdin=pipe, stdout=pipe, text=True)


def _counting_definition(tmp_path, first_takes=1):
    """A definition whose build adds a line to a file on this machine, and takes a while if it is the first."""
    definition = tmp_path / "counted.def"
    definition.write_text(
        f"Bootstrap: docker-archive\nFrom: {small_images.archive()}\n\n"
        f"%setup\n    echo built >> {tmp_path}/builds\n"
        f"    [ $(wc -l < {tmp_path}/builds) -gt 1 ] || sleep {first_takes}\n"
    )
    return str(definition)


@pytest.mark.slow
async def test_processes_that_ask_for_one_image_build_it_once(options, tmp_path):
    image = _counting_definition(tmp_path)
    builders = [_builder(options, image) for _ in range(3)]
    paths = set()
    for builder in builders:
        said, _ = await asyncio.to_thread(builder.communicate)
        assert builder.returncode == 0
        paths.add(said)
    assert len(paths) == 1
    assert (tmp_path / "builds").read_text() == "built\n"


@pytest.mark.slow
async def test_if_a_builder_is_killed_the_next_process_builds_the_image(backend, options, tmp_path):
    image = _counting_definition(tmp_path, first_takes=40)
    with _builder(options, image) as first:
        begun = await eventually((tmp_path / "builds").exists, seconds=60)
        first.kill()
    assert begun
    assert await eventually(lambda: at_work(options["cache_dir"] / "building") == [])
    async with await backend.open(_ask(image=image)) as sandbox:
        assert (await sandbox.exec("echo built")).output == "built\n"
    assert (tmp_path / "builds").read_text() == "built\nbuilt\n"
    assert list(Path(options["cache_dir"], "building").iterdir()) == []


@pytest.mark.slow
async def test_unused_images_are_removed_from_a_cache_that_is_too_large(new_backend, options, tmp_path):
    images = []
    for number in range(3):
        copy = tmp_path / f"{number}.tar"
        copy.write_bytes(small_images.archive().read_bytes() + bytes(512 * number))
        images.append(f"docker-archive:{copy}")
    limited = {"cache_max_mb": 1}
    used = new_backend(**limited)
    await (await used.open(_ask(image=images[0]))).aclose()
    idle = new_backend(**limited)
    await (await idle.open(_ask(image=images[1]))).aclose()
    await idle.aclose()
    await (await new_backend(**limited).open(_ask(image=images[2]))).aclose()
    kept = [json.loads((entry / "entry.json").read_bytes())["source"] for entry in _cached_images(options)]
    assert sorted(kept) == sorted([images[0], images[2]])


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", "no Docker engine at"), (None, "expected the address of a Docker engine")],
)
def test_an_address_that_is_not_a_docker_engine_s_is_named(answer, said):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        port = server.getsockname()[1] if answer is not None else "port"
        with pytest.raises(ImageError, match=said) as caught:
            Source("daemon", "docker-daemon:x:1").digest(f"tcp://127.0.0.1:{port}")
        assert caught.value.hint
        if answer is not None:
            thread.join(60)
