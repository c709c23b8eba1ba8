"""The process limit of each level in the output of `hermes-core doctor` and `hermes-core sandboxes probe`."""

from __future__ import annotations

import json

import pytest

from hermes_core.cli import main
from hermes_sandbox.backend.probing import Finding
from hermes_sandbox.commands.doctor_advice import unbounded_advice


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*words):
        status = main(["-p", "telling_backends", *words], environ={"HERMES_PLUGINS": "hermes-sandbox"})
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    return run


def test_the_doctor_says_what_bounds_processes_at_each_level_that_works(command):
    [row] = json.loads(command("doctor", "local", "--json"))["backends"]
    found = {bound["level"]: bound for bound in row["processes"]}
    assert list(found) == row["works"]
    for bound in found.values():
        assert bound["message"][:1].isdigit() is bound["bounded"]
        assert (bound["hint"] is None) is bound["bounded"]


def test_the_doctor_has_a_line_for_it(command):
    assert command("doctor", "strict").endswith("strict  works at none\n    processes at none: 1024, by a keeper\n")


def test_the_doctor_warns_where_nothing_bounds_processes_and_the_backend_works(command):
    out = command("doctor", "loose")
    assert "loose  works at none\n    processes at none: nothing bounds them: nobody looks after them\n    → " in out


def test_probing_says_what_bounds_processes_beside_the_level(command):
    out = command("sandboxes", "probe", "strict")
    assert out.startswith("strict  works at none\n    processes at none: 1024, by a keeper\n")


def test_probing_warns_where_nothing_bounds_processes(command):
    out = command("sandboxes", "probe", "loose")
    assert "\n    processes at none: nothing bounds them: nobody looks after them\n    → " in out


def test_probing_as_json_has_the_sandbox_s_own_words(command):
    [row] = json.loads(command("sandboxes", "probe", "loose", "--json"))["backends"]
    [finding] = row["findings"]
    assert (finding["works"], finding["processes"]) == (True, "none: nobody looks after them")


@pytest.mark.parametrize("words", [("doctor", "silent"), ("sandboxes", "probe", "silent")])
def test_of_a_backend_that_says_nothing_nothing_is_said(command, words):
    out = command(*words)
    assert "works" in out
    assert "processes" not in out


def test_probing_says_what_sandboxes_do_not_have_for_themselves(command):
    out = command("sandboxes", "probe", "sharing")
    assert out == "sharing  works at none\n    lacks private_tmp at none: all of them share /tmp\n"
    [row] = json.loads(command("sandboxes", "probe", "sharing", "--json"))["backends"]
    [finding] = row["findings"]
    assert finding["lacks"] == {"private_tmp": "all of them share /tmp"}


def test_a_level_at_which_they_are_bounded_is_what_to_use():
    loose = Finding(backend="a", isolation="none", feature="isolation", works=True, processes="none: root")
    strict = Finding(backend="a", isolation="bwrap", feature="isolation", works=True, processes="1024")
    other = Finding(backend="b", isolation="container", feature="isolation", works=True, processes="1024")
    said = "nothing bounds them: root"
    assert unbounded_advice(loose, [loose, strict]) == (said, "--isolation bwrap, where they are bounded")
    assert "docs/backends" in unbounded_advice(loose, [loose, other])[1]
