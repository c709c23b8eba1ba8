"""Missing programs and limits that cannot be enforced are refused with the next step; weaker isolation is recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import small_images

from hermes_backend_singularity.backend import ApptainerBackend, SingularityBackend
from hermes_backend_singularity.options import SingularityOptions
from hermes_backend_singularity.runtime import failures
from hermes_core.contracts.errors import BackendError, SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox import LeaseBook
from hermes_sandbox.backends import Lease
from hermes_sandbox.local import mount_sized, unmount
from hermes_testing.separation import require_separation
from hermes_testing.socket_ways import openings_in
from hermes_testing.watching import TooSoon, with_more_time

needs_program = pytest.mark.component("apptainer")


def _ask(**fields):
    return SandboxSpec(**{"isolation": "container", "network": "none", **fields})


def _backend(tmp_path, **options):
    kept = {"cache_dir": tmp_path / "cache", "scratch_dir": tmp_path / "scratch"}
    backend = SingularityBackend(SingularityOptions(**{**kept, **options}))
    backend.lease_dir = tmp_path / "leases"
    return backend


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_a_missing_program_is_named_with_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(failures.ProgramMissingError, match="no program apptainer or singularity") as caught:
        await _backend(tmp_path).check(_ask())
    assert "setup_apptainer.sh" in caught.value.hint
    with pytest.raises(failures.ProgramMissingError, match="expected an executable program, got /nowhere/apptainer"):
        await _backend(tmp_path, program="/nowhere/apptainer").check(_ask())


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        ("FATAL: Failed to create user namespace: not allowed to create user namespace", SandboxRefusedError, "sysctl"),
        ("FATAL: container creation failed: mount hook: no space left on device", failures.NoSpaceError, "scratch_dir"),
        ("FATAL: while mounting image: could not run squashfuse: exec: not found", SandboxRefusedError, "squashfuse"),
        ("FATAL: failed to mount overlay: invalid argument", SandboxRefusedError, "scratch_dir"),
        ("FATAL: image format not recognized", failures.ImageError, "SIF"),
        ("\x1b[91mFATAL:   something else\x1b[0m", failures.InstanceError, "instance start"),
    ],
)
async def test_an_error_of_the_program_leads_to_the_next_step(image_of_nothing, tmp_path, said, kind, hint):
    program = _script(tmp_path / "apptainer", f"[ $1 = --version ] && exit\nprintf '%s\\n' '{said}' >&2\nexit 255")
    backend = _backend(tmp_path, program=program, image=image_of_nothing)
    with pytest.raises(kind) as caught:
        await backend.open(_ask())
    assert hint in caught.value.hint
    assert "\x1b" not in str(caught.value)
    assert LeaseBook(tmp_path / "leases").read() == ([], [])
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_an_instance_that_never_starts_is_an_error_in_time(image_of_nothing, tmp_path):
    said = tmp_path / "said"
    text = f"[ $1 = --version ] && exit\necho waiting for the lock\ntouch {said}\nexec sleep 600"
    program = _script(tmp_path / "apptainer", text)

    async def is_given_up(seconds):
        said.unlink(missing_ok=True)
        backend = _backend(tmp_path, program=program, image=image_of_nothing, start_timeout=seconds)
        try:
            with pytest.raises(failures.InstanceError) as caught:
                await backend.open(_ask())
        finally:
            await backend.aclose()
        TooSoon.unless(said.exists(), "the program had not said what it waits for")
        assert f"has not started within {seconds:g} s: waiting for the lock" in str(caught.value)

    await with_more_time(is_given_up)


async def test_a_program_that_claims_success_and_starts_nothing_is_an_error(image_of_nothing, tmp_path):
    backend = _backend(tmp_path, program=_script(tmp_path / "apptainer", "exit 0"), image=image_of_nothing)
    with pytest.raises(failures.InstanceError, match="ended at once"):
        await backend.open(_ask())


async def test_an_instance_that_shares_this_machine_s_namespaces_is_refused(image_of_nothing, tmp_path):
    # This fails closed: a program that ignores --containall is noticed.
    text = (
        '[ $1 = --version ] && exit\nwhile [ "$1" ]; do [ "$1" = --pid-file ] && file=$2; shift; done\n'
        "sleep 600 >/dev/null 2>&1 &\necho $! >$file"
    )
    backend = _backend(tmp_path, program=_script(tmp_path / "apptainer", text), image=image_of_nothing)
    with pytest.raises(SandboxRefusedError, match="does not have its own pid namespace"):
        await backend.open(_ask())


@pytest.fixture
def image_of_nothing(tmp_path):
    """A directory that looks like an image."""
    (tmp_path / "looks" / ".singularity.d").mkdir(parents=True)
    return str(tmp_path / "looks")


@pytest.mark.parametrize(
    "options",
    [
        {"user": "agent"},
        {"workspace": "work"},
        {"binds": ["data:/data"]},
        {"cache_max_mb": 0},
        {"usr": "x"},
        {"scratch_dir": "/a,b"},
    ],
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError):
        SingularityOptions(**options)


def test_hermes_agent_s_environment_variables_set_options(monkeypatch):
    monkeypatch.setenv("TERMINAL_SINGULARITY_IMAGE", "docker://old:1")
    monkeypatch.setenv("TERMINAL_SANDBOX_DIR", "/base")
    assert SingularityOptions().scratch_dir == Path("/base/singularity")
    monkeypatch.setenv("TERMINAL_SCRATCH_DIR", "/scratch/me")
    found = SingularityOptions()
    assert (found.image, found.scratch_dir) == ("docker://old:1", Path("/scratch/me"))
    assert SingularityOptions(image="new.sif").image == "new.sif"


@pytest.fixture
def tiny_disk(tmp_path, request):
    """Makes a directory with a size limit in megabytes."""
    place = tmp_path / "tiny"
    place.mkdir()
    try:
        mount_sized(place, request.param << 20)
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    yield place
    unmount(place)


@needs_program
@pytest.mark.parametrize("tiny_disk", [1], indirect=True)
async def test_an_error_about_a_full_cache_names_the_option_to_change(options, tmp_path, tiny_disk):
    backend = _backend(tmp_path, **{**options, "cache_dir": tiny_disk / "cache"})
    with pytest.raises(failures.NoSpaceError, match=r"docker-archive.*cannot be built") as caught:
        await backend.open(_ask(image=f"docker-archive:{small_images.archive()}"))
    assert "cache_dir" in caught.value.hint
    assert list((tiny_disk / "cache" / "building").iterdir()) == []


@needs_program
@pytest.mark.parametrize("tiny_disk", [16], indirect=True)
async def test_a_full_scratch_directory_is_an_error_inside_and_leaves_nothing(options, tmp_path, tiny_disk):
    backend = _backend(tmp_path, **{**options, "scratch_dir": tiny_disk / "scratch"})
    async with await backend.open(_ask()) as sandbox:
        full = await sandbox.exec("export KEPT=yes; head -c 30000000 /dev/zero > large")
        assert (full.exit_code, b"No space left" in full.stderr) == (1, True)
        assert (await sandbox.exec("rm large; echo $KEPT > small; cat small")).output == "yes\n"
    assert list((tiny_disk / "scratch").iterdir()) == []


@needs_program
async def test_features_that_need_an_agent_are_refused_for_an_image_without_python(backend):
    image = f"docker-archive:{small_images.archive()}"
    for fields in ({"session": "live"}, {"network": "allowlist", "allow_hosts": ("example.org",)}):
        with pytest.raises(SandboxRefusedError, match="no python3"):
            await backend.open(_ask(image=image, **fields))


@needs_program
async def test_an_image_without_python_is_refused_if_no_shell_can_serve_it(options, tmp_path):
    backend = _backend(tmp_path, **{**options, "plain": "never"})
    with pytest.raises(BackendError, match="has no python3"):
        await backend.open(_ask(image=f"docker-archive:{small_images.archive()}"))
    assert list((tmp_path / "scratch").iterdir()) == []


@needs_program
async def test_no_socket_leads_a_shell_s_commands_past_the_network_namespace(backend, tmp_path):
    async with await backend.open(_ask(image=f"docker-archive:{small_images.archive()}")) as sandbox:
        assert sandbox.provenance["agent"] == "sh"
        for _ in range(2):
            assert await openings_in(sandbox, tmp_path) == []
            await sandbox.renew()


@needs_program
async def test_a_shell_s_commands_cannot_end_it(backend):
    async with await backend.open(_ask(image=f"docker-archive:{small_images.archive()}", pids=40)) as sandbox:
        await require_separation(sandbox)
        await sandbox.write_file("kept", b"1")
        await sandbox.exec("kill -9 -1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done 2>/dev/null", timeout=10)
        await sandbox.renew()
        assert (await sandbox.exec("cat kept; id -u")).output == "11000\n"


@needs_program
async def test_a_bind_keeps_its_owner_and_can_be_read_only(options, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("shared\n")
    data.chmod(0o755)
    backend = _backend(tmp_path, **{**options, "binds": [f"{data}:/workspace/data:ro"], "env": {"FROM_OPTIONS": "a b"}})
    async with await backend.open(_ask()) as sandbox:
        assert (await sandbox.exec("cat data/file; echo $FROM_OPTIONS; touch beside")).output == "shared\na b\n"
        assert (await sandbox.exec("touch data/x")).exit_code == 1
    assert (data / "file").stat().st_uid == os.geteuid()


@needs_program
async def test_root_inside_is_possible_and_recorded_as_weaker(options, tmp_path):
    backend = _backend(tmp_path, **{**options, "user": "root"})
    await backend.check(_ask())
    async with await backend.open(_ask()) as sandbox:
        assert (await sandbox.exec("id -u; touch /etc/mine && echo written")).output == "0\nwritten\n"
        assert sandbox.provenance["weaker"] == ["commands are root inside"]
        tried = (
            "kill -9 1; mount -t tmpfs none /mnt 2>/dev/null; unshare -m true 2>/dev/null; mknod x b 8 0 2>/dev/null"
        )
        await sandbox.exec(f"{tried}; echo still")
        assert (await sandbox.exec("ls x 2>/dev/null; grep -c ' /mnt ' /proc/mounts")).output == "0\n"


@needs_program
async def test_a_full_network_is_this_machine_s_and_recorded(backend):
    async with await backend.open(_ask(network="full")) as sandbox:
        here = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]}
        seen = (await sandbox.exec("tail -n +3 /proc/net/dev | cut -d: -f1")).output.split()
        assert set(seen) == here


@needs_program
async def test_a_frozen_workspace_can_be_read_and_run_and_not_written(backend):
    async with await backend.open(_ask()) as sandbox:
        await sandbox.exec("mkdir -m 0700 a; echo 1 > a/f; printf '#!/bin/sh\\necho ran' > run; chmod 700 run")
        await sandbox.freeze()
        assert (await sandbox.exec("cat a/f; ./run")).output == "1\nran\n"
        for attempt in ("echo 2 > a/f", "rm a/f", "touch new", "chmod 777 a", "mv run other"):
            assert (await sandbox.exec(attempt)).exit_code != 0, attempt
        assert (await sandbox.exec("echo elsewhere > /tmp/x && cat /tmp/x")).output == "elsewhere\n"


@needs_program
@pytest.mark.parametrize("network", ["none", "full"])
async def test_no_proxy_nor_registry_password_of_the_caller_reaches_the_commands(
    options, tmp_path, monkeypatch, network
):
    for name in ("HTTPS_PROXY", "http_proxy", "APPTAINER_DOCKER_PASSWORD"):
        monkeypatch.setenv(name, "http://me:very-secret@proxy:1")
    backend = _backend(tmp_path, **options)
    async with await backend.open(_ask(network=network)) as sandbox:
        seen = await sandbox.exec("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    await backend.aclose()
    assert "PATH=" in seen.output
    assert "very-secret" not in seen.output


async def test_a_sandbox_that_cannot_be_swept_does_not_prevent_sweeping_the_others(tmp_path, monkeypatch):
    backend = _backend(tmp_path)
    leases = [
        Lease.of_this_process(
            sandbox_id=name, backend="singularity", rollout_id=None, deadline=0.0, handle={"is": name}
        )
        for name in ("stuck", "other")
    ]
    asked = []

    async def reclaim(handle):
        asked.append(handle["is"])
        if handle["is"] == "stuck":
            raise BackendError("no")

    monkeypatch.setattr("hermes_backend_singularity.backend.find_abandoned", lambda _folder, _backend: leases)
    monkeypatch.setattr(backend, "reclaim", reclaim)
    with pytest.raises(BackendError, match="no"):
        await backend.sweep()
    assert asked == ["stuck", "other"]


def test_the_newer_name_is_the_same_backend():
    assert issubclass(ApptainerBackend, SingularityBackend)
    assert ApptainerBackend.declaration.name == "apptainer"
