"""`hermes-core sandboxes`: ps, gc, kill and probe, with real sandboxes, and with damaged and foreign leases."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, SecretStr
from sandbox_support import backend, processes_of

from hermes_core.cli import main
from hermes_core.contracts.errors import SandboxLostError
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_sandbox.leases import book as books
from hermes_sandbox.leases import keeper
from hermes_sandbox.leases.book import LEASE_VERSION, Lease, LeaseBook, public_options
from hermes_testing.watching import begin, eventually


def lease(**changes):
    made = Lease.of_this_process(
        sandbox_id="s1", backend="local", rollout_id=None, deadline=time.time() + 7300, handle={}
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def book(tmp_path):
    return LeaseBook(tmp_path / "leases")


@pytest.fixture
def command(book, capsys):
    def call(*words, options=None):
        given = json.dumps(options or {"root_dir": str(book.directory.parent)})
        argv = ["sandboxes", *words, "--lease-dir", str(book.directory), "--backend-options", given]
        # Other backends would find sandboxes on this machine that do not belong to these tests.
        status = main(argv, environ={"HERMES_PLUGINS": "hermes-sandbox"})
        return status, *capsys.readouterr()

    return call


def test_the_table_names_owner_rollout_and_what_is_overdue(book, command):
    book.write(lease(rollout_id="r7", created=time.time() - 3700))
    book.write(lease(sandbox_id="s2", deadline=1.0))
    status, out, _ = command("ps")
    head, first, second = out.splitlines()
    assert status == 0
    assert head.split() == ["SANDBOX", "BACKEND", "AGE", "ENDS", "ROLLOUT", "OWNER"]
    assert first.split()[:6] == ["s1", "local", "1h", "in", "2h", "r7"]
    assert f"alive (pid {os.getpid()} on " in first
    assert second.split()[3] == "overdue"
    assert "nothing to remove" in command("gc")[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe\x00", "codec"),
        (b"[]", "all of it"),
        (b'{"sandbox_id": "torn"}', "required"),
        (json.dumps({"version": LEASE_VERSION + 1}).encode(), "a newer release wrote it"),
        (json.dumps({**lease().to_json(), "owner_pid": "many"}).encode(), "owner_pid"),
        (json.dumps({**lease().to_json(), "deadline": None}).encode(), "deadline"),
        (json.dumps(lease().to_json()).encode(), "it names sandbox 's1'"),
    ],
)
def test_a_damaged_lease_is_reported_by_every_command_and_stops_none(book, command, content, said):
    book.write(lease(backend="elsewhere"))
    (book.directory / "bad.json").write_bytes(content)
    for words in (("ps",), ("gc",), ("kill", "--backend", "local")):
        status, _, complaint = command(*words)
        assert status == 0
        assert "bad.json is not a lease" in complaint
        assert said in complaint
    assert (book.directory / "bad.json").exists()


def test_a_lease_that_cannot_be_read_is_reported(book, command):
    book.write(lease())
    (book.directory / "folder.json").mkdir()
    assert "cannot be read: Is a directory" in command("ps")[2]


def test_a_lease_of_the_release_before_is_understood(book):
    book.write(lease())
    old = {k: v for k, v in lease().to_json().items() if k not in {"options", "withheld", "lifetime", "version"}}
    (book.directory / "s1.json").write_text(json.dumps(old))
    [read], problems = book.read()
    assert (read.version, read.owner(), problems) == (1, "alive", [])


async def test_killing_ends_a_living_sandbox_and_its_owner_is_told(command, book):
    async with backend() as made:
        made.lease_dir = book.directory
        sandbox = await made.open(SandboxSpec())
        other = await made.open(SandboxSpec())
        await sandbox.exec("setsid sleep 300 &")
        call = await begin(sandbox, "sleep 300")
        status, out, _ = await asyncio.to_thread(command, "kill", sandbox.id[:10])
        assert (status, out) == (0, f"removed {sandbox.id}\n")
        # The command can be killed a moment before the agent, which then still reports that.
        [ended] = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(ended, SandboxLostError) or getattr(ended, "exit_code", None) == 137
        with pytest.raises(SandboxLostError):
            await sandbox.exec("true")
        assert processes_of(sandbox.id) == []
        assert (await other.exec("echo fine")).output == "fine\n"
        await sandbox.aclose()
        status, out, _ = await asyncio.to_thread(command, "kill", "--all")
        assert out == f"removed {other.id}\n"
        assert list(book.directory.iterdir()) == []


def test_kill_must_be_told_what(command, book):
    book.write(lease(sandbox_id="aa1"))
    book.write(lease(sandbox_id="aa2"))
    status, _, complaint = command("kill")
    assert (status, "expected sandboxes to kill, got none" in complaint) == (2, True)
    assert command("kill", "aa")[0] == 2
    assert command("kill", "zz")[0] == 2
    assert len(book.read()[0]) == 2


def test_what_belongs_to_another_machine_is_not_declared_gone(command, book):
    book.write(lease(node="another-machine"))
    status, _, complaint = command("kill", "s1")
    assert status == 1
    assert "another-machine" in complaint
    assert "call hermes-core there" in complaint
    assert len(book.read()[0]) == 1


def test_a_lease_whose_handle_is_damaged_is_left_with_the_reason(command, book):
    book.write(lease(owner_start=1))
    status, _, complaint = command("gc")
    assert status == 1
    assert "its lease is damaged" in complaint


class _Jump(BaseModel):
    host: str
    password: SecretStr | None = None


class _Options(BaseModel):
    host: str = "here"
    port: int = 22
    password: SecretStr | None = None
    jump: tuple[_Jump, ...] = ()


def test_a_lease_carries_the_backend_s_options_and_never_a_secret():
    options = _Options(host="far", password="open", jump=({"host": "near", "password": "sesame"},))
    kept, withheld = public_options(options)
    assert kept == {"host": "far", "jump": [{"host": "near"}]}
    assert withheld == ("password", "jump.0.password")
    made = Lease.of_this_process(
        sandbox_id="s1", backend="ssh", rollout_id=None, deadline=1.0, handle={}, options=options
    )
    assert "sesame" not in json.dumps(made.to_json())
    assert Lease.from_json(json.dumps(made.to_json())) == made


def test_gc_says_which_secrets_a_lease_lacks(command, book):
    book.write(lease(owner_start=1, backend="unheard-of", withheld=("password",)))
    assert "secrets are not in leases; this one was made with password" in command("gc")[2]


async def test_the_options_a_sandbox_was_made_with_reach_gc(tmp_path, command, book):
    async with backend() as made:
        made.lease_dir = book.directory
        sandbox = await made.open(SandboxSpec())
        [written], _ = book.read()
        assert written.options == {"root_dir": str(made.options.root_dir)}
        assert written.withheld == ()
        await sandbox.aclose()


async def test_a_sandbox_in_use_is_never_overdue(monkeypatch):
    # The clock of the leases jumps, by less than the rest of a deadline. Only the sandbox's own clock runs normally.
    ahead = 0.0
    clock = SimpleNamespace(time=lambda: time.time() + ahead)
    monkeypatch.setattr(books, "time", clock)
    monkeypatch.setattr(keeper, "time", clock)
    monkeypatch.setattr(keeper, "_SLOWEST", 0.05)
    async with backend() as made, await made.open(SandboxSpec(lifetime=6000.0)) as sandbox:
        book = LeaseBook(made.lease_dir)
        for _ in range(3):
            [before], _ = book.read()
            ahead += 4000.0

            async def is_extended(deadline=before.deadline):
                assert (await sandbox.exec("true")).exit_code == 0
                [now], _ = book.read()
                assert not now.is_overdue
                return now.deadline > deadline

            assert await eventually(is_extended), "the lease has not been extended"


async def test_a_lease_that_was_struck_out_is_not_written_again(book):
    held = lease()
    book.write(held)
    assert book.extend(held, 5.0).deadline == 5.0
    book.remove("s1")
    assert book.extend(held, 6.0) is None
    assert book.read() == ([], [])


def test_a_lease_is_claimed_by_one(book):
    book.write(lease())
    with book.claim("s1") as mine, book.claim("s1") as theirs:
        assert (mine, theirs) == (True, False)
        book.remove("s1")
    with book.claim("s1") as nobodys:
        assert nobodys is False


@pytest.mark.parametrize("text", ["[]", "{", '"x"'])
def test_options_that_are_no_object_are_refused(book, capsys, text):
    assert main(["sandboxes", "gc", "--lease-dir", str(book.directory), "--backend-options", text]) == 2
    assert "expected a JSON object" in capsys.readouterr().err


def test_probing_says_what_works_here_and_what_does_not(command, tmp_path):
    status, out, _ = command("probe", "local", "--json", options={"cgroup": str(tmp_path)})
    found = {(f["isolation"], f["feature"]): f for f in json.loads(out)["backends"][0]["findings"]}
    assert status == 0
    assert found["none", "isolation"]["works"] is True
    assert found["none", "file_size"]["detail"] == "rlimit, per process"
    assert found["none", "network none"]["works"] is False
    assert "bwrap" in found["none", "network none"]["hint"]
    assert found["none", "memory"]["works"] is False
    assert "run as root" in found["none", "memory"]["hint"]


@pytest.mark.component("bwrap")
def test_probing_says_which_sockets_a_limited_network_leaves(command, tmp_path):
    _, out, _ = command("probe", "local", "--json", options={"cgroup": str(tmp_path)})
    found = {(f["isolation"], f["feature"]): f for f in json.loads(out)["backends"][0]["findings"]}
    for network in ("network none", "network allowlist"):
        said = "sockets: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK"
        assert (found["bwrap", network]["works"], found["bwrap", network]["detail"]) == (True, said)


def test_probing_a_backend_with_wrong_options_names_what_is_wrong(command):
    status, out, _ = command("probe", "local", options={"colour": "green"})
    assert status == 1
    assert "colour" in out
