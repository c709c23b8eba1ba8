"""Images: the task's own, the default one, and those that are built from a Dockerfile."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.engine.failures import EngineError, ImageMissingError
from hermes_backend_docker.images.build_context import read_context
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import TaskError
from hermes_core.contracts.sandbox import SandboxSpec


def _ask(image: str | None = None) -> SandboxSpec:
    return SandboxSpec(isolation="container", network="none", image=image)


@pytest.fixture
def task(tmp_path: Path, image: str) -> Iterator[Path]:
    """A folder with a Dockerfile that leaves traces; what was built from it is removed."""
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "given.txt").write_text("from the context\n")
    lines = [
        f"FROM {image}",
        "COPY given.txt /given.txt",
        "RUN echo $RANDOM-$$ > /stamp",
        "ENV FROM_IMAGE=yes HOME=/root",
        # A separate name, because other tests build at the same time.
        f"LABEL task={secrets.token_hex(8)}",
    ]
    (folder / "Dockerfile").write_text("\n".join(lines))
    own = _label(folder / "Dockerfile")
    yield folder / "Dockerfile"
    if made := _images_of(own):
        subprocess.run(["docker", "rmi", "-f", *made], check=True, capture_output=True)


def _label(task: Path) -> str:
    return task.read_text().partition("LABEL ")[2].split()[0]


def _images_of(own: str) -> set[str]:
    asked = ["docker", "images", "--quiet", "--filter", f"label={own}"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.component("docker")
async def test_a_task_s_dockerfile_is_built_and_its_variables_reach_the_commands(
    backend: DockerBackend, task: Path
) -> None:
    async with await backend.open(_ask(f"dockerfile:{task}")) as sandbox:
        found = await sandbox.exec("cat /given.txt; echo $FROM_IMAGE; test $HOME != /root && echo own home")
        assert found.output == "from the context\nyes\nown home\n"
        assert sandbox.provenance["image"].startswith("hermes-built:")
        assert sandbox.provenance["image_id"].startswith("sha256:")


@pytest.mark.component("docker")
async def test_many_who_ask_at_once_get_one_build(backend: DockerBackend, task: Path) -> None:

    async def stamp() -> str:
        async with await backend.open(_ask(f"dockerfile:{task}")) as sandbox:
            return (await sandbox.exec("cat /stamp")).output

    stamps = await asyncio.gather(*(stamp() for _ in range(6)))
    assert len(set(stamps)) == 1
    assert len(_images_of(_label(task))) == 1


@pytest.mark.component("docker")
async def test_another_content_is_another_image(backend: DockerBackend, task: Path) -> None:
    first = await backend.images.ready(f"dockerfile:{task}")
    again = await backend.images.ready(f"dockerfile:{task}")
    (task.parent / "given.txt").write_text("changed\n")
    second = await backend.images.ready(f"dockerfile:{task}")
    assert first.id == again.id
    assert first.id != second.id


@pytest.mark.component("docker")
async def test_an_image_that_somebody_removes_in_a_run_is_built_again(backend: DockerBackend, task: Path) -> None:
    built = await backend.images.ready(f"dockerfile:{task}")
    async with await backend.open(_ask(built.name)) as sandbox:
        assert (await sandbox.exec("test -e /stamp")).exit_code == 0
    subprocess.run(["docker", "rmi", "-f", built.name], check=True, capture_output=True)
    async with await backend.open(_ask(f"dockerfile:{task}")) as sandbox:
        assert (await sandbox.exec("test -e /stamp")).exit_code == 0
    subprocess.run(["docker", "rmi", "-f", built.name], check=True, capture_output=True)
    with pytest.raises(ImageMissingError, match=built.name) as caught:
        await backend.open(_ask(built.name))
    assert caught.value.hint == f"docker pull {built.name}"


@pytest.mark.component("docker")
async def test_a_build_that_fails_shows_its_output(backend: DockerBackend, task: Path) -> None:
    task.write_text(f"{task.read_text()}\nRUN echo the reason is $((40 + 2)); exit 7")
    with pytest.raises(EngineError, match="returned a non-zero code: 7") as caught:
        await backend.images.ready(f"dockerfile:{task}")
    assert "the reason is 42" in caught.value.message


@pytest.mark.component("docker")
async def test_the_dockerfile_of_the_options_stands_in_for_the_image(tmp_path: Path, task: Path) -> None:
    elsewhere = tmp_path / "Other.dockerfile"
    task.rename(elsewhere)
    made = DockerBackend(DockerOptions(dockerfile=elsewhere, context=task.parent, pull="never"))
    made.lease_dir = tmp_path / "leases"
    try:
        async with await made.open(_ask()) as sandbox:
            assert (await sandbox.exec("cat /given.txt")).output == "from the context\n"
    finally:
        await made.aclose()


@pytest.mark.component("docker")
async def test_one_who_gives_up_does_not_take_the_build_from_the_others(backend: DockerBackend, task: Path) -> None:
    impatient = asyncio.create_task(backend.images.ready(f"dockerfile:{task}"))
    patient = asyncio.create_task(backend.images.ready(f"dockerfile:{task}"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).name.startswith("hermes-built:")


def test_a_hash_depends_on_names_contents_links_and_modes_only(tmp_path: Path) -> None:
    seen = set()
    for change in ("none", "content", "name", "mode", "link"):
        folder = tmp_path / change
        (folder / "sub").mkdir(parents=True)
        (folder / "Dockerfile").write_text("FROM scratch")
        file = folder / "sub" / ("other" if change == "name" else "file")
        file.write_text("new" if change == "content" else "old")
        file.chmod(0o755 if change == "mode" else 0o644)
        (folder / "link").symlink_to("elsewhere" if change == "link" else "sub/file")
        seen.add(read_context(folder / "Dockerfile", None)[0])
    assert len(seen) == 5
    assert read_context(tmp_path / "none" / "Dockerfile", tmp_path / "none")[0] in seen


def test_a_list_of_what_to_ignore_is_refused_rather_than_ignored(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    (tmp_path / ".dockerignore").write_text("secret")
    with pytest.raises(TaskError, match="not supported") as caught:
        read_context(tmp_path / "Dockerfile", None)
    assert "docker build -t NAME" in (caught.value.hint or "")


def test_a_dockerfile_that_is_not_there_is_the_task_s_fault(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="No such file"):
        read_context(tmp_path / "Dockerfile", None)
