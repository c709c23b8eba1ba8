"""Which user ids tests get: unused ones, or ids that no process can become; never an error during collection."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hermes_testing import users
from hermes_testing.users import free_users

EVERY_ID = "         0          0 4294967295\n"
ONLY_ROOT = "0 1000 1\n"
TOO_HIGH = 2**32
BECOME = "import os, sys; os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))"


@pytest.fixture
def quiet_machine(monkeypatch):
    """A machine where only root has ids."""
    monkeypatch.setattr(users, "_ids_of_processes", lambda: {range(1)})
    monkeypatch.setattr(users, "_subordinate_ids", lambda _name: [])
    monkeypatch.setattr(users, "_has_a_name", lambda number: number == 0)


def test_each_call_gets_users_of_its_own():
    first, second = free_users(), free_users(100)
    assert first > 0
    assert second > 0
    assert not set(range(first, first + 10)) & set(range(second, second + 100))


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(
    ("name", "end"),
    [
        (EVERY_ID, 2_147_000_000),
        ("0 100000 65536\n", 65_536),
        ("0 1000 1\n1 100000 65536\n", 65_537),
        ("1 100000 65536\n0 1000 1\n", 65_537),
        ("0 1000 1\n1 100000 999\n1000 200000 1000\n5000 300000 9000\n", 2_000),
    ],
)
def test_lines_that_join_are_one_range(name, end):
    """A user namespace of an ordinary user with subordinate ids has one line for itself and one for them."""
    for maps in ((name, EVERY_ID), (EVERY_ID, name)):
        first = free_users(maps=maps)
        assert min(end // 2, 2_001_000_000) <= first
        assert first + 10 <= end


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize(
    "name",
    [
        ONLY_ROOT,
        "1000 1000 1\n",
        "",
        "0 1000 1\n2 100000 65536\n",
        "0 1000 1\n2147000000 100000 65536\n",
        "0 1000 1\n2147000005 100000 65536\n2147065541 300000 7\n",
        "0 1000 1\n2 2 4294967293\n",
    ],
)
def test_without_ids_to_give_away_they_are_not_mapped_and_no_error(name):
    for maps in ((name, EVERY_ID), (EVERY_ID, name), (name, name)):
        first = free_users(maps=maps)
        for line in name.splitlines():
            inside, _, count = map(int, line.split())
            assert first + 10 <= inside or inside + count <= first
        assert first >= 2_147_000_000
        assert first + 10 <= 2**32 - 1 or first >= TOO_HIGH, "the highest number means no change"


@pytest.mark.parametrize("taken", ["_ids_of_processes", "_subordinate_ids"])
def test_where_all_are_taken_nobody_can_become_them(monkeypatch, taken):
    monkeypatch.setattr(users, taken, lambda *_: {range(2**32)})
    assert free_users() >= TOO_HIGH
    assert 2_147_000_000 <= free_users(maps=(ONLY_ROOT, ONLY_ROOT)) < TOO_HIGH


def test_a_number_with_a_name_is_no_answer(monkeypatch):
    monkeypatch.setattr(users, "_has_a_name", lambda number: number < 2_147_000_050)
    assert free_users(maps=(ONLY_ROOT, ONLY_ROOT)) >= 2_147_000_050


@pytest.mark.parametrize("number", [free_users(maps=(ONLY_ROOT, ONLY_ROOT)), TOO_HIGH])
def test_becoming_nobody_fails(number):
    """In a namespace with only root, if the machine allows one; elsewhere for the invalid number."""
    unshare = ["unshare", "--user", "--map-root-user"]
    if number < TOO_HIGH and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces here")
    prefix = unshare if number < TOO_HIGH else []
    done = subprocess.run([*prefix, sys.executable, "-c", BECOME, str(number)], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"OSError" in done.stderr or b"OverflowError" in done.stderr or b"PermissionError" in done.stderr


def test_a_namespace_of_root_alone_can_be_asked():
    """As `make test` does there during collection; it needs no root."""
    code = "from hermes_testing.users import free_users; print(free_users())"
    argv = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, check=False, env=dict(os.environ))
    if b"unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.stderr == b""
    assert int(done.stdout) >= 2_147_000_000
