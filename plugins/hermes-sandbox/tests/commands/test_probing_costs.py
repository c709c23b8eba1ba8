"""`doctor` and `sandboxes probe` spend nothing on a backend that was not named, and print a line for each."""

from __future__ import annotations

import json
import sys

import pytest

from hermes_core.cli import main

PLUGINS = "hermes-sandbox"


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words):
        status = main(["-p", "costly_backends", *words], environ={"HERMES_PLUGINS": PLUGINS})
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def purse(tmp_path):
    (tmp_path / "purse").touch()
    return tmp_path / "purse"


def options(purse):
    return ["--backend-options", json.dumps({"purse": str(purse)})]


def test_plain_doctor_spends_nothing_and_says_what_would_try_it(command, monkeypatch):
    """They used to request a Slurm allocation, and to start sandboxes that Modal charges for."""
    opened = []
    monkeypatch.setattr("costly_backends.Dear.open", opened.append)
    _, out, _ = command("doctor")
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("dear "))
    assert lines[at].endswith("is not tried")
    assert lines[at + 1].strip() == "trying it costs something: it spends a coin"
    assert lines[at + 2].strip() == "→ hermes-core doctor dear tries it"
    assert opened == []


def test_doctor_says_first_what_it_spends_on_a_backend_that_is_named(command, purse):
    status, out, err = command("doctor", "dear", *options(purse))
    assert (status, "works at none" in out) == (0, True)
    assert err.startswith("trying dear: it spends a coin\n")
    assert purse.read_text() != ""


def test_what_will_be_spent_stands_before_the_backend_s_own_line(command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    _, out, _ = command("doctor", "dear")
    assert out.startswith("trying dear: it spends a coin\ndear  works at none\n")


def test_the_json_tells_what_was_not_tried(command):
    _, out, _ = command("doctor", "--json")
    rows = {row["backend"]: row for row in json.loads(out)["backends"]}
    assert {name: (row["tried"], row["works"]) for name, row in rows.items() if name in {"dear", "cheap"}} == {
        "dear": (False, []),
        "cheap": (True, ["none"]),
    }


def test_a_backend_costs_what_those_cost_that_it_is_made_of(command):
    _, out, _ = command("doctor", "--json")
    rows = {row["backend"]: row for row in json.loads(out)["backends"]}
    assert rows["made_of_dear"]["tried"] is False


def test_every_backend_has_its_line_whatever_one_of_them_does(command):
    """A backend that raised used to end the command, without a report on the others."""
    status, out, _ = command("sandboxes", "probe", "--json")
    rows = json.loads(out)["backends"]
    found = {(one["backend"], one["feature"]): one for row in rows for one in row["findings"]}
    assert status == 0
    assert found["cheap", "isolation"]["works"] is True
    assert found["raises", "isolation"]["works"] is False
    assert found["raises", "isolation"]["detail"].startswith("KeyError: 'node' (")
    assert "costly_backends.py, line " in found["raises", "isolation"]["detail"]
    assert "SystemExit: 3" in found["exits", "isolation"]["detail"]
    assert found["sticks", "isolation"]["works"] is True
    assert "the line is dead" in found["sticks", "closing"]["detail"]
    assert found["local", "isolation"]["works"] is True


@pytest.mark.parametrize("words", [("doctor",), ("sandboxes", "probe")])
def test_a_name_that_two_plugins_declare_has_its_line_too(command, tmp_path, words):
    """It used to end the command before anything was tried."""
    spec = 'BackendSpec(name="cheap", summary="Another.", target="nowhere:Nothing")'
    source = "from hermes_core import hookimpl\nfrom hermes_core.specs import BackendSpec\n\n\n"
    (tmp_path / "other.py").write_text(f"{source}@hookimpl\ndef hermes_backends():\n    return [{spec}]\n")
    _, out, _ = command(*words, "-p", str(tmp_path / "other.py"), "--json")
    found = json.dumps(json.loads(out))
    assert "backend 'cheap' is declared by 2 plugins" in found
    assert "KeyError: 'node'" in found


def test_plain_probe_spends_nothing_and_a_named_one_says_what_it_will_do(command, purse):
    _, out, err = command("sandboxes", "probe")
    costs = "trying it costs something: it spends a coin"
    assert f"is not tried\n    {costs}\n    → hermes-core sandboxes probe dear tries it\n" in out
    assert err == ""
    status, out, err = command("sandboxes", "probe", "dear", *options(purse))
    assert (status, err) == (0, "trying dear: it spends a coin\n")
    assert purse.read_text() != ""


def test_doctor_tells_of_a_backend_that_cannot_be_closed(command):
    _, out, _ = command("doctor", "sticks")
    assert "works at none" in out
    assert "\n    closing: ConnectionError: the line is dead" in out


def test_both_commands_find_the_same_of_a_backend(command):
    _, out, _ = command("doctor", "--json")
    rows = {row["backend"]: row for row in json.loads(out)["backends"]}
    _, out, _ = command("sandboxes", "probe", "--json")
    probed = {row["backend"]: row for row in json.loads(out)["backends"]}
    assert list(probed) == list(rows)
    for name in ("cheap", "raises", "exits"):
        found = dict(probed[name])
        assert [one["isolation"] for one in found.pop("findings")] == ["none"]
        assert found == rows[name]


def test_probing_names_what_it_would_try_as_it_goes_and_what_works_nowhere(command):
    status, out, _ = command("sandboxes", "probe", "raises")
    assert status == 1
    assert out.startswith("raises  does not work here\n    KeyError: 'node' (")
    assert out.endswith("\n    → hermes-core plugins show backend:raises names its package\n")


@pytest.mark.parametrize(
    ("member", "said"), [("nobody", "works at none"), (3, "options of backend:made_of_dear are wrong")]
)
def test_what_a_backend_is_made_of_need_not_be_there_to_tell_what_it_costs(command, member, said):
    _, out, err = command("doctor", "made_of_dear", "--backend-options", json.dumps({"member": member}))
    assert said in out
    assert err == ""
