"""The user and first folder of commands: from the option, the task, or the image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_backend_docker.backend import DockerBackend
from hermes_backend_docker.containers.hardening import AGENT_CAPABILITIES, ROOT_CAPABILITIES
from hermes_backend_docker.containers.users import Account, find_account
from hermes_backend_docker.options import DockerOptions
from hermes_core.contracts.errors import SandboxLacksError, SandboxRefusedError
from hermes_core.contracts.sandbox import ChangesTaker, SandboxSpec

PASSWD = (
    "root:x:0:0:root:/root:/bin/bash\n\nbroken\nagent:x:1000:1001::/home/agent:/bin/sh\n"
    "7:x:70:71::/seven:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nhomeless:x:9:9"
)
GROUP = "root:x:0:\nteam:x:50:agent\n"
LOOK = "id -u; id -g; pwd; echo $HOME"


def _ask(**fields: Any) -> SandboxSpec:
    return SandboxSpec(**{"isolation": "container", "network": "none", **fields})


@pytest.fixture
def build_image_of(image: str, tmp_path: Path) -> Callable[[str], str]:
    """Return the name of an image built from some lines: `build_image_of("USER agent")`."""

    def write(lines: str) -> str:
        (tmp_path / "Dockerfile").write_text(f"FROM {image}\n{lines}\n")
        return f"dockerfile:{tmp_path / 'Dockerfile'}"

    return write


@pytest.mark.parametrize(
    ("user", "account"),
    [
        ("agent", Account(1000, 1001, "/home/agent")),
        ("1000", Account(1000, 1001, "/home/agent")),
        ("agent:team", Account(1000, 50, "/home/agent")),
        ("agent:77", Account(1000, 77, "/home/agent")),
        ("4321", Account(4321, 0, "/")),
        ("4321:team", Account(4321, 50, "/")),
        ("7", Account(70, 71, "/seven")),
        ("homeless", Account(9, 9, "/")),
    ],
)
def test_a_user_is_whom_the_engine_would_take_for_it(user: str, account: Account) -> None:
    assert find_account(user, PASSWD, GROUP) == account


@pytest.mark.parametrize(
    ("user", "said"),
    [("nobody", "no user 'nobody'"), ("agent:crew", "no group 'crew'"), ("toor", "user 'toor' of the image is root")],
)
def test_a_user_that_the_image_does_not_know_is_refused(user: str, said: str) -> None:
    with pytest.raises(SandboxRefusedError, match=said):
        find_account(user, PASSWD, GROUP)


@pytest.mark.component("docker")
@pytest.mark.parametrize(
    ("lines", "fields", "found"),
    [
        ("WORKDIR /app", {"as_image": True}, "0 0 /app /root"),
        ("WORKDIR /home/agent\nUSER agent", {"as_image": True}, "1000 1000 /home/agent /home/agent"),
        ("USER 4321:1234", {"as_image": True}, "4321 1234 / /"),
        ("USER agent", {"as_image": True, "user": "root"}, "0 0 / /root"),
        ("WORKDIR /app", {"as_image": True, "user": "nobody"}, "65534 65534 /app /nonexistent"),
        ("WORKDIR /app", {"user": "nobody"}, "65534 65534 /workspace /nonexistent"),
        ("WORKDIR /app", {"as_image": True, "cwd": "/srv"}, "0 0 /srv /root"),
        ("WORKDIR /app\nUSER root", {}, "1000 1000 /workspace /workspace"),
    ],
)
async def test_commands_have_the_user_and_folder_of_the_task_and_its_image(
    backend: DockerBackend,
    build_image_of: Callable[[str], str],
    leftovers: None,
    lines: str,
    fields: dict[str, Any],
    found: str,
) -> None:
    async with await backend.open(_ask(image=build_image_of(f"RUN mkdir -p /srv\n{lines}"), **fields)) as sandbox:
        assert (await sandbox.exec(LOOK)).output.split() == found.split()
        assert [sandbox.provenance["uid"], sandbox.provenance["gid"]] == [int(number) for number in found.split()[:2]]


@pytest.mark.component("docker")
async def test_a_working_directory_that_the_image_s_user_does_not_own_stays_as_it_is(
    backend: DockerBackend, build_image_of: Callable[[str], str]
) -> None:
    async with await backend.open(_ask(image=build_image_of("WORKDIR /app\nUSER agent"), as_image=True)) as sandbox:
        assert (await sandbox.exec("stat -c %u . && touch mine")).output.startswith("0\n")
        assert (await sandbox.exec("touch mine")).exit_code != 0


@pytest.mark.component("docker")
async def test_the_option_stands_above_both(image: str, tmp_path: Path, build_image_of: Callable[[str], str]) -> None:
    made = DockerBackend(DockerOptions(image=image, pull="never", user="4321:1234"))
    made.lease_dir = tmp_path / "leases"
    try:
        async with await made.open(_ask(image=build_image_of("USER agent"), as_image=True, user="root")) as sandbox:
            assert (await sandbox.exec("id -u; id -g")).output == "4321\n1234\n"
    finally:
        await made.aclose()


@pytest.mark.component("docker")
async def test_a_user_by_an_unknown_name_is_refused_and_nothing_is_left(
    backend: DockerBackend, leftovers: None
) -> None:
    with pytest.raises(SandboxRefusedError, match="no user 'somebody'"):
        await backend.check(_ask(user="somebody"))


async def test_slots_have_users_of_their_own() -> None:
    backend = DockerBackend(DockerOptions())
    with pytest.raises(SandboxRefusedError, match="slots of a container have their own"):
        backend.refuse(_ask(isolation="container+slot", user="root"))
    assert not backend.commands_are_root(_ask(isolation="container+slot", as_image=True))


@pytest.mark.parametrize(
    ("options", "fields", "are_root"),
    [
        ({}, {}, False),
        ({}, {"user": "root"}, True),
        ({}, {"user": "0:5"}, True),
        ({}, {"user": "agent"}, False),
        ({}, {"as_image": True}, True),
        ({"user": "root"}, {"user": "agent"}, True),
        ({"user": "1000"}, {"user": "root"}, False),
    ],
)
def test_an_image_that_was_not_looked_at_yet_counts_as_root_s(
    options: dict[str, Any], fields: dict[str, Any], *, are_root: bool
) -> None:
    assert DockerBackend(DockerOptions(**options)).commands_are_root(_ask(**fields)) is are_root


@pytest.mark.component("docker")
async def test_who_is_root_is_known_when_the_image_is(
    backend: DockerBackend, build_image_of: Callable[[str], str]
) -> None:
    spec = _ask(image=build_image_of("USER agent"), as_image=True)
    await backend.check(spec)
    assert not backend.commands_are_root(spec)


@pytest.mark.component("docker")
async def test_root_keeps_the_bits_that_packages_set_and_gets_no_device(
    backend: DockerBackend, leftovers: None
) -> None:
    async with await backend.open(_ask(user="root")) as sandbox:
        assert sandbox.provenance["capabilities"] == [*AGENT_CAPABILITIES, *ROOT_CAPABILITIES]
        made = await sandbox.exec(
            "cd /tmp && touch f && chown 1000:50 f && chmod 2755 f && stat -c '%a %u %g' f"
            '&& python3 -c \'import os; os.chroot("/"); print("in")\''
        )
        assert made.output == "2755 1000 50\nin\n"
        for attempt in (
            "mknod /tmp/null c 1 3",
            "mount -t tmpfs none /tmp",
            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
            "echo 1 >/proc/sys/kernel/sysrq",
        ):
            assert (await sandbox.exec(attempt)).exit_code != 0, attempt


@pytest.mark.component("docker")
async def test_a_disk_limit_that_is_only_wished_for_makes_nothing_read_only(
    backend: DockerBackend, caplog: pytest.LogCaptureFixture
) -> None:
    wish = _ask(user="root", memory_mb=256, disk_mb=10240, wishes=("disk_mb",))
    await backend.check(wish)
    async with await backend.open(wish) as sandbox:
        assert (await sandbox.exec("mkdir /tests && touch /usr/bin/new && echo made")).output == "made\n"
        limits = sandbox.provenance["limits"]
        assert (limits["disk"].startswith("none: "), limits["memory"]) == (True, "256 MB, no swap")
    assert [record.getMessage().count("disk is not limited") for record in caplog.records] == [1]
    async with await backend.open(_ask(memory_mb=256, disk_mb=16)) as sandbox:
        assert sandbox.provenance["limits"]["disk"] == "16 MB, in memory"


@pytest.mark.component("docker")
async def test_an_image_without_python_is_followed_as_well(plain_image: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {plain_image}\nWORKDIR /app\nUSER 1000:1000\n")
    made = DockerBackend(DockerOptions(pull="never"))
    made.lease_dir = tmp_path / "leases"
    try:
        spec = _ask(image=f"dockerfile:{tmp_path / 'Dockerfile'}", as_image=True)
        async with await made.open(spec) as sandbox:
            assert (await sandbox.exec("id -u; pwd; stat -c %u .")).output == "1000\n/app\n0\n"
            # And reports why no second sandbox of it can be judged.
            assert isinstance(sandbox, ChangesTaker)
            with pytest.raises(SandboxLacksError, match="need Python in the sandbox"):
                await sandbox.take_changes(sandbox, "/")
    finally:
        await made.aclose()


@pytest.mark.component("docker")
@pytest.mark.parametrize(
    ("line", "user", "said"),
    [
        ("RUN truncate -s 400M /etc/group", "agent", "to have at most"),
        ("RUN echo big:x:4294967295:1::/: >>/etc/passwd", "big", "an invalid number"),
        (f"RUN printf 'long:x:%s:1::/:\\n' {'9' * 5000} >>/etc/passwd", "long", "has no user 'long'"),
        ("RUN rm /etc/passwd /etc/group", "agent", "has no user 'agent'"),
    ],
)
async def test_accounts_of_a_hostile_image_are_refused(
    backend: DockerBackend, image: str, tmp_path: Path, line: str, user: str, said: str
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\n{line}\n")
    with pytest.raises(SandboxRefusedError, match=said):
        await backend.open(_ask(image=f"dockerfile:{tmp_path / 'Dockerfile'}", user=user))


@pytest.mark.component("docker")
async def test_an_images_own_home_is_that_of_its_own_user(backend: DockerBackend, image: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nENV HOME=/srv/home\nUSER agent\n")
    made = f"dockerfile:{tmp_path / 'Dockerfile'}"
    for fields, home in (({"as_image": True}, "/srv/home"), ({"user": "agent"}, "/home/agent")):
        async with await backend.open(_ask(image=made, **fields)) as sandbox:
            assert (await sandbox.exec("echo $HOME")).output == f"{home}\n"
