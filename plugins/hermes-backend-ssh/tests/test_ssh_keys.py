"""Which private keys are used: one that others can get at is refused, as OpenSSH refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from paramiko import RSAKey

from hermes_backend_ssh.keys import candidate_keys
from hermes_backend_ssh.options import Login
from hermes_core.contracts.errors import SandboxRefusedError


def key_file(folder, mode):
    path = folder / "id_rsa"
    RSAKey.generate(2048).write_private_key_file(str(path))
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o677, 0o777])
def test_a_key_that_others_can_get_at_is_refused_with_the_command_that_mends_it(tmp_path, mode):
    path = key_file(tmp_path, mode)
    with pytest.raises(SandboxRefusedError, match=f"is accessible to other users \\(mode {mode:04o}\\)") as caught:
        list(candidate_keys(Login(host="h", key=path)))
    assert f"chmod 600 {path}" in caught.value.hint


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_of_its_owner_alone_is_used(tmp_path, mode):
    path = key_file(tmp_path, mode)
    ((words, key),) = candidate_keys(Login(host="h", key=path))
    assert words == f"key {path}"
    assert key is not None


def test_a_link_is_judged_by_the_key_that_it_names(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(key_file(tmp_path, 0o644))
    with pytest.raises(SandboxRefusedError, match="accessible to other users"):
        list(candidate_keys(Login(host="h", key=link)))


def test_an_open_key_in_the_usual_place_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / ".ssh").mkdir()
    key_file(tmp_path / ".ssh", 0o644)
    ((words, key),) = candidate_keys(Login(host="h", agent=False))
    assert key is None
    assert "accessible to other users" in words
