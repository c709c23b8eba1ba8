"""Images with bash and no Python: this machine's own is brought to them, and they are served by an agent in full."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.engine.client import Engine
from hermes_backend_docker.engine.failures import EngineError
from hermes_backend_docker.images import carried_python
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import BackendError, NoPythonError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.backends import NotPortableError, PortablePython, portable_python
from hermes_testing.suites.backend.suite import BackendSuite

pytestmark = pytest.mark.component("docker")
BARE = "hermes-bare-test:2"


@pytest.fixture(scope="session", autouse=True)
def _bare_image(image: str) -> None:
    """An image like the small one without its Python."""
    text = f"FROM {image}\nRUN rm -rf /usr/bin/python3* /usr/lib/python3*\n"
    subprocess.run(["docker", "build", "-q", "-t", BARE, "-"], input=text.encode(), check=True, capture_output=True)


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a volume that no other test has; removed in the end."""
    own = dataclasses.replace(portable_python(), digest=f"test-{uuid.uuid4().hex[:12]}")
    monkeypatch.setattr(carried_python, "portable_python", lambda: own)
    name = f"hermes-python-{own.digest}"
    yield name
    subprocess.run(["docker", "volume", "rm", "-f", name], check=True, capture_output=True)


def _ask(**fields: Any) -> SandboxSpec:
    return SandboxSpec(**{"isolation": "container", "network": "none", **fields})


def _backend(tmp_path: Path, image: str = BARE, **options: Any) -> DockerBackend:
    made = DockerBackend(DockerOptions(image=image, pull="never", **options))
    made.lease_dir = tmp_path / "leases"
    return made


@pytest_asyncio.fixture
async def bare(volume: str, tmp_path: Path) -> AsyncIterator[DockerBackend]:
    """A backend with an image that has bash but no Python."""
    made = _backend(tmp_path)
    yield made
    await made.aclose()


def _in_volume(name: str) -> list[str]:
    command = ["docker", "run", "--rm", "-v", f"{name}:/v:ro", BARE, "ls", "/v"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("level", ["container", "container+slot"])
async def test_what_needs_an_agent_is_served(bare: DockerBackend, tmp_path: Path, level: str, leftovers: None) -> None:
    async with await bare.open(_ask(isolation=level, session="live")) as box:
        assert box.provenance["carried_python"] == portable_python().version
        assert (await box.exec("type python3")).exit_code != 0
        (tmp_path / "up").mkdir()
        (tmp_path / "up" / "f").write_bytes(b"\0" * 100_000)
        await box.upload(tmp_path / "up", "there")
        await box.download("there", tmp_path / "down")
        assert (tmp_path / "down" / "f").read_bytes() == b"\0" * 100_000
        for _ in range(2):
            await box.renew()
            assert (await box.exec("ls; env | grep -c LD_")).output == "there\n0\n"
    await bare.aclose()


async def test_the_workspace_can_be_made_read_only(bare: DockerBackend) -> None:
    async with await bare.open(_ask()) as box:
        await box.exec("echo kept >f")
        await box.freeze()
        assert (await box.exec("cat f; echo x >f || echo refused")).stdout == b"kept\nrefused\n"


@pytest.mark.parametrize("fields", [{}, {"disk_mb": 16, "memory_mb": 256}])
async def test_not_even_root_inside_can_change_it(volume: str, tmp_path: Path, fields: dict[str, int]) -> None:
    backend = _backend(tmp_path, user="root")
    async with await backend.open(_ask(**fields)) as box:
        mount = carried_python.MOUNT
        tried = f"touch {mount}/x; for f in {mount}/*/bin/*; do echo x >$f; done; rm -rf {mount}; umount {mount}"
        await box.exec(tried)
        await box.renew()
        assert (await box.exec("echo on")).output == "on\n"
    await backend.aclose()
    assert len(_in_volume(volume)) == 2


async def test_many_that_start_at_once_bring_one(bare: DockerBackend, volume: str, leftovers: None) -> None:
    boxes = await asyncio.gather(*(bare.open(_ask()) for _ in range(4)))
    assert [(await box.exec("echo on")).output for box in boxes] == ["on\n"] * 4
    await bare.aclose()
    assert len(_in_volume(volume)) == 2


async def test_one_that_is_there_is_taken_and_half_of_one_is_not(volume: str, tmp_path: Path, leftovers: None) -> None:
    half = ["docker", "run", "--rm", "-v", f"{volume}:/v", BARE, "mkdir", "-p", "/v/half/bin"]
    subprocess.run(half, check=True)
    for _ in range(2):
        backend = _backend(tmp_path)
        async with await backend.open(_ask()) as box:
            assert (await box.exec("echo on")).output == "on\n"
        await backend.aclose()
    assert len(_in_volume(volume)) == 3


async def test_one_that_has_been_removed_is_brought_again(bare: DockerBackend, volume: str) -> None:
    for _ in range(2):
        async with await bare.open(_ask()) as box:
            assert (await box.exec("echo on")).output == "on\n"
        subprocess.run(["docker", "volume", "rm", volume], check=True, capture_output=True)


async def test_one_that_has_been_removed_is_brought_again_for_another_image(
    bare: DockerBackend, volume: str, build_image_of: Callable[..., str]
) -> None:
    for image in (None, build_image_of("RUN touch /other")):
        async with await bare.open(_ask(image=image)) as box:
            assert (await box.exec("echo on")).output == "on\n"
        subprocess.run(["docker", "volume", "rm", volume], check=True, capture_output=True)


async def _complaint(backend: DockerBackend) -> NoPythonError:
    with pytest.raises(NoPythonError) as caught:
        await backend.open(_ask(isolation="container+slot"))
    await backend.aclose()
    return caught.value


async def test_it_is_not_brought_where_the_options_say_so(volume: str, tmp_path: Path, leftovers: None) -> None:
    for options in ({"carry_python": False}, {"python": "python3"}):
        assert "options forbid it" in str(await _complaint(_backend(tmp_path, **options)))
    backend = _backend(tmp_path, carry_python=False)
    async with await backend.open(_ask()) as box:
        assert box.provenance["agent"] == "sh"
    await backend.aclose()


@pytest.fixture
def build_image_of(tmp_path: Path) -> Callable[..., str]:
    """Return the name of an image without Python, built from some lines: `build_image_of("RUN …")`."""

    def write(*lines: str, base: str = BARE) -> str:
        (tmp_path / "Dockerfile").write_text("\n".join([f"FROM {base}", *lines, ""]))
        return f"dockerfile:{tmp_path / 'Dockerfile'}"

    return write


async def test_an_image_puts_nothing_into_what_others_start(
    volume: str, build_image_of: Callable[..., str], tmp_path: Path, leftovers: None
) -> None:
    """The engine fills an empty volume with the image's files, unless the mount disables it."""
    mount = carried_python.MOUNT
    evil = f"mkdir -p {mount}/evil/bin && printf '#!/bin/sh\\n' >{mount}/evil/bin/python3 && ln -s evil {mount}/ready"
    image = build_image_of(f"RUN {evil} && chmod 755 {mount}/evil/bin/python3")
    for name in (image, BARE, image):
        backend = _backend(tmp_path, name)
        async with await backend.open(_ask()) as box:
            assert (await box.exec("echo on")).output == "on\n"
            assert box.provenance["carried_python"]
        subprocess.run(["docker", "volume", "rm", volume], check=False, capture_output=True)
        async with await backend.open(_ask()) as box:
            assert (await box.exec(f"ls {mount}")).output.split()[-1] == "ready"
            assert "evil" not in (await box.exec(f"ls {mount}")).output
        await backend.aclose()


@pytest.mark.parametrize(
    "lines",
    [("RUN mkdir /bin/bash",), ("RUN ln -s /nowhere /bin/bash",), ("RUN ln -s busybox /bin/bash",)],
    ids=["directory", "dangling", "other"],
)
async def test_a_bash_that_does_not_work_counts_as_missing(
    volume: str,
    plain_image: str,
    build_image_of: Callable[..., str],
    tmp_path: Path,
    lines: tuple[str],
    leftovers: None,
) -> None:
    image = build_image_of(*lines, base=plain_image)
    assert "no /bin/bash of version 4.4 or newer" in str(await _complaint(_backend(tmp_path, image)))
    backend = _backend(tmp_path, image)
    async with await backend.open(_ask()) as box:
        assert (await box.exec("echo on")).output == "on\n"
        assert box.provenance["agent"] == "sh"
        assert "carried_python" not in box.provenance
    await backend.aclose()


async def test_what_an_image_preloads_is_for_its_own_programs(
    bare: DockerBackend, build_image_of: Callable[..., str], leftovers: None
) -> None:
    image = build_image_of("RUN echo no library >/pre.so", "ENV LD_PRELOAD=/pre.so LD_LIBRARY_PATH=/nowhere")
    async with await bare.open(_ask(image=image)) as box:
        assert box.provenance["carried_python"]
        assert "/pre.so" in (await box.exec("echo $LD_PRELOAD")).output


async def test_a_volume_that_was_left_half_way_is_filled(volume: str, tmp_path: Path, leftovers: None) -> None:
    broken = ["docker", "run", "--rm", "-v", f"{volume}:/v:nocopy", BARE, "ln", "-s", "gone", "/v/ready"]
    subprocess.run(broken, check=True)
    backend = _backend(tmp_path)
    async with await backend.open(_ask()) as box:
        assert (await box.exec("echo on")).output == "on\n"
    await backend.aclose()


async def test_what_it_would_not_run_on_is_said(
    volume: str, plain_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: None
) -> None:
    assert "no /bin/bash of version 4.4" in str(await _complaint(_backend(tmp_path, plain_image)))
    taken = _backend(tmp_path, volumes=["hermes-test-nothing:/.hermes-python"])
    assert "the option volumes already uses /.hermes-python" in str(await _complaint(taken))
    other = dataclasses.replace(portable_python(), architecture="s390x")
    monkeypatch.setattr(carried_python, "portable_python", lambda: other)
    error = await _complaint(_backend(tmp_path))
    assert "is for amd64, that is for s390x" in str(error) or "is for arm64, that is for s390x" in str(error)
    assert "use an image that has python3 or bash" in str(error.hint)


async def test_a_temporary_failure_does_not_disqualify_an_image(
    volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: None
) -> None:
    """A full disk, or an engine that is busy: the next sandbox may have its Python."""
    backend = _backend(tmp_path)

    def fail(self: object, folder: str) -> bytes:
        raise BackendError("no space left", hint="TMPDIR")

    with monkeypatch.context() as patched:
        patched.setattr(PortablePython, "pack", fail)
        with pytest.raises(BackendError, match="no space left"):
            await backend.open(_ask())
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "run_to_end", _exit_as_killed)
        with pytest.raises(EngineError, match="was killed") as caught:
            await backend.open(_ask())
        assert "carry_python: false" in str(caught.value.hint)
    async with await backend.open(_ask(session="live")) as box:
        assert box.provenance["carried_python"]
    await backend.aclose()


async def _exit_as_killed(self: object, container: str, *, seconds: float) -> int:
    return 137


async def test_a_python_that_cannot_be_packed_is_said(
    volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: None
) -> None:
    def refuse() -> None:
        raise NotPortableError("this machine is darwin")

    monkeypatch.setattr(carried_python, "portable_python", refuse)
    assert "cannot be brought there: this machine is darwin" in str(await _complaint(_backend(tmp_path)))


@pytest.mark.slow
class TestCarriedPython(BackendSuite):
    plugin = "hermes_backend_docker.plugin"
    component = "docker"
    options: ClassVar[Mapping[str, Any]] = {"image": BARE, "pull": "never"}
    sandbox_fields: ClassVar[Mapping[str, Any]] = {"isolation": "container", "network": "none"}
    crowd = 10
