"""No secret of a run's settings is written, printed or quoted."""

from __future__ import annotations

import dataclasses
import io
import json
import traceback

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_secrets import LEAVES, MARK, nested_structures, secret_structures

from hermes_core.cli import main
from hermes_core.contracts.errors import HermesError
from hermes_core.discovery import PluginSettings, load_plugins
from hermes_runner.config import RunConfig
from hermes_runner.run.config_redaction import redact_settings, redact_used_settings, secret_texts
from hermes_runner.run.run import Run
from hermes_sandbox import LeaseBook, default_lease_dir
from hermes_sandbox.backends import Lease


@pytest.fixture
def registry():
    extra = ("rollout_components", "keyed_components")
    return load_plugins(
        PluginSettings(allow=("hermes-sandbox", "hermes-tools", "hermes-models", "hermes-runner"), extra=extra),
        environ={},
    )


def config(tmp_path, **values):
    task = {"id": "a", "prompt": "Write a.", "verifier": {"name": "half"}, "solution": ["echo a > answer.txt"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    given = {"tasks": str(tmp_path / "tasks.jsonl"), "out": str(tmp_path / "out"), "enabled_toolsets": ["terminal"]}
    return RunConfig.parse({**given, "terminal_backend": "keyed", **values}, source="the test")


def doors(key):
    return [{"name": "front", "key": key}, {"name": "back", "key": key}]


async def test_the_secrets_of_a_backend_are_in_no_file_and_another_token_continues_the_run(registry, tmp_path):
    first = config(
        tmp_path, backends={"keyed": {"token": "s3cret-one"}}, backend_options={"doors": doors("s3cret-two")}
    )
    await Run(first, registry, stream=io.StringIO()).execute()
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"run.json", "summary.json"} <= written.keys()
    assert [name for name, data in written.items() if b"s3cret" in data] == []
    assert json.loads(written["run.json"])["fingerprint"]["backend_options"]["doors"][1]["name"] == "back"
    second = config(tmp_path, backends={"keyed": {"token": "s3cret-new"}}, backend_options={"doors": doors("s3cret-2")})
    result = await Run(second, registry, stream=io.StringIO()).execute()
    assert result.summary["rollouts"]["total"] == 1
    elsewhere = config(tmp_path, backend_options={"doors": doors("s3cret-2"), "env": {"DOOR_TOKEN": "s3cret"}})
    await Run(elsewhere, registry, stream=io.StringIO()).execute()
    third = config(tmp_path, backend_options={"doors": []})
    with pytest.raises(HermesError, match="differs in backend_options"):
        await Run(third, registry, stream=io.StringIO()).execute()


def test_no_option_is_written_if_it_is_unknown_which_are_secret(registry, tmp_path):
    wrong = config(tmp_path, backend_options={"token": "s3cret", "nonsense": 1}, backends={"other": {"key": "s3cret"}})
    assert "s3cret" not in json.dumps(redact_used_settings(wrong, registry))
    unknown = config(tmp_path, terminal_backend="not-there", backend_options={"token": "s3cret"})
    assert redact_used_settings(unknown, registry)["backend_options"] == {"token": "(withheld)"}


def planted_config(tmp_path):
    """Return a config with the mark at every place for a secret."""
    door = {"name": "front", "key": MARK}
    options = {
        "token": MARK,
        "doors": [door],
        "by_name": {"a": MARK},
        "plain_password": MARK,
        "address": f"https://me:{MARK}@host/x",
        "env": {"A": MARK},
    }
    return config(
        tmp_path,
        backend_options=options,
        backends={"keyed": {"doors": [door, door]}, "unheard-of": {"anything": MARK}},
        sandbox={"env": {"HF_TOKEN": MARK}},
        engine="keyed",
        engine_options={
            "pass_key": MARK,
            "runtime_env": {"env_vars": {"A": MARK}, "pip": [f"git+https://me:{MARK}@code.example/own.git"]},
        },
        extra_body={"headers": {"X": MARK}, "deep": [{"api_key": MARK}]},
        chat_template_kwargs={"auth_token": MARK},
        verifier_access="live",
    )


def as_yaml(values):
    return {key: value for key, value in values.model_dump(mode="json").items() if key != "plugins"}


async def test_no_secret_of_a_config_reaches_a_file_or_a_lease(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    seen = {}
    book = LeaseBook(default_lease_dir())
    write = LeaseBook.write

    def watch(self, lease):
        write(self, lease)
        path = self.directory / f"{lease.sandbox_id}.json"
        seen[path.name] = (path.read_text(), path.stat().st_mode & 0o777, self.directory.stat().st_mode & 0o777)

    monkeypatch.setattr(LeaseBook, "write", watch)
    await Run(planted_config(tmp_path), registry, stream=io.StringIO()).execute()
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"run.json", "summary.json", "rollouts.jsonl", "report.html"} <= files.keys()
    assert [name for name, data in files.items() if MARK.encode() in data] == []
    assert seen
    assert [text for text, _, _ in seen.values() if MARK in text] == []
    assert {modes for _, *modes in map(tuple, seen.values()) for modes in [tuple(modes)]} == {(0o600, 0o700)}
    assert book.read()[0] == []


def test_a_config_is_printed_without_secrets_and_what_was_printed_is_refused_with_the_place(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(as_yaml(planted_config(tmp_path))))
    command = ["-p", "keyed_components", "-p", "rollout_components", "run", "--config", str(tmp_path / "run.yaml")]
    assert main([*command, "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert MARK not in printed
    values = yaml.safe_load(printed)
    assert values["backend_options"]["doors"] == [{"name": "front", "key": "(withheld)"}]
    assert values["backend_options"]["address"] == "https://(withheld)@host/x"
    assert values["backends"]["unheard-of"] == {"anything": "(withheld)"}
    (tmp_path / "printed.yaml").write_text(printed)
    assert main([*command[:-1], str(tmp_path / "printed.yaml")]) == 2
    assert "expected a secret, got '(withheld)'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "values",
    [
        {"backend_options": {"token": 12345678}},
        {"backend_options": {"token": MARK, "fewest": 3}},
        {"backend_options": {"token": MARK, "fewest": "x"}},
        {"backend_options": {"doors": [{"name": MARK, "key": [MARK]}]}},
        {"backend_options": {"env": {"A": [MARK]}}},
        {"backend_options": {"address": [f"https://me:{MARK}@host"]}},
        {"backend_options": f"token={MARK}"},
        {"backends": {"keyed": f"token={MARK}"}},
        {"sandbox": {"env": {"A": [MARK]}}},
        {"sandbox": {"env": f"A={MARK}"}},
        {"model": [f"http://me:{MARK}@host"]},
        {"extra_body": MARK},
    ],
)
def test_no_secret_reaches_an_error_or_its_traceback(tmp_path, capsys, values):
    given = as_yaml(config(tmp_path))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**given, **values}))
    command = ["-p", "keyed_components", "-p", "rollout_components", "run", "--config", str(tmp_path / "run.yaml")]
    assert main([*command, "--debug"]) == 2
    said = capsys.readouterr().err
    assert MARK not in said
    assert "12345678" not in said
    assert "hermes-core: " in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'token: "{MARK}\nb: 1', "line 2"),
        (f"token: *{MARK}", "line 1, column 8"),
        (f"token: !{MARK} x", "line 1, column 8"),
        (f"- {MARK}", "got list"),
    ],
)
def test_a_broken_config_file_is_not_quoted(tmp_path, capsys, text, said):
    (tmp_path / "run.yaml").write_text(text)
    assert main(["run", "--config", str(tmp_path / "run.yaml"), "--debug"]) == 2
    err = capsys.readouterr().err
    assert (said in err, MARK in err) == (True, False)


@pytest.mark.parametrize("text", [f'{{"token": "{MARK}"', f'"{MARK}"', f'["{MARK}"]'])
@pytest.mark.parametrize("command", [("run", "t.jsonl"), ("sandboxes", "gc"), ("doctor", "local")])
def test_broken_options_on_the_command_line_are_not_quoted(capsys, command, text):
    assert main([*command, "--backend-options", text, "--debug"]) == 2
    err = capsys.readouterr().err
    assert ("JSON object" in err or "no JSON" in err, MARK in err) == (True, False)


def test_what_an_old_lease_says_is_listed_without_secrets(tmp_path, capsys):
    book = LeaseBook(tmp_path / "leases")
    made = Lease.of_this_process(
        sandbox_id="s1", backend="local", rollout_id=None, deadline=1.0, handle={"address": f"http://me:{MARK}@host"}
    )
    book.write(dataclasses.replace(made, options={"env": {"A": MARK}, "docker_host": f"tcp://me:{MARK}@host"}))
    assert main(["sandboxes", "ps", "--json", "--lease-dir", str(book.directory)]) == 0
    out = capsys.readouterr().out
    assert ("docker_host" in out, MARK in out) == (True, False)


def test_doctor_repeats_no_option(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    options = {"token": MARK, "fewest": 3, "address": f"http://me:{MARK}@host"}
    main(["-p", "keyed_components", "doctor", "keyed", "--backend-options", json.dumps(options)])
    out = capsys.readouterr()
    assert ("3 doors at least" in out.out, MARK in out.out + out.err) == (True, False)


async def test_a_folder_that_an_earlier_release_began_with_plain_values_goes_on(registry, tmp_path):
    settings = {"backend_options": {"env": {"A": "one"}, "plain_password": "pw"}}
    await Run(config(tmp_path, **settings), registry, stream=io.StringIO()).execute()
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    manifest["fingerprint"]["backend_options"] = {"env": {"A": "one"}, "plain_password": "pw"}
    (tmp_path / "out" / "run.json").write_text(json.dumps(manifest))
    changed = {"backend_options": {"env": {"A": "two"}, "plain_password": "another", "token": "t"}}
    await Run(config(tmp_path, **changed), registry, stream=io.StringIO()).execute()
    with pytest.raises(HermesError, match="differs in backend_options"):
        await Run(config(tmp_path, backend_options={"env": {"B": "one"}}), registry, stream=io.StringIO()).execute()


async def test_a_secret_that_an_engine_repeats_is_taken_out_of_the_error_that_stops_the_run(registry, tmp_path):
    settings = config(tmp_path, backend_options={"token": MARK, "talks": True})
    with pytest.raises(HermesError, match=r"nobody is let in with \(withheld\)") as caught:
        await Run(settings, registry, stream=io.StringIO()).execute()
    assert MARK not in "".join(traceback.format_exception(caught.value))


async def test_a_secret_that_an_engine_repeats_is_taken_out_of_the_outcomes(registry, tmp_path, monkeypatch):
    async def accept_any_spec(self, spec):
        del self, spec

    monkeypatch.setattr(registry.load("backend", "keyed"), "check", accept_any_spec)
    settings = config(tmp_path, backend_options={"token": MARK, "talks": True}, max_attempts=2)
    await Run(settings, registry, stream=io.StringIO()).execute()
    files = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert [name for name, text in files.items() if MARK in text] == []
    assert "nobody is let in with (withheld)" in files["rollouts.jsonl"]
    assert "nobody is let in with (withheld)" in files["attempts.jsonl"]


@pytest.mark.parametrize(
    "command",
    [("doctor", "keyed"), ("sandboxes", "probe", "keyed"), ("sandboxes", "gc", "--backend", "keyed")],
)
def test_a_secret_that_an_engine_repeats_is_in_nothing_that_a_command_says(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gone = Lease.of_this_process(sandbox_id="s1", backend="keyed", rollout_id=None, deadline=1.0, handle={})
    LeaseBook(default_lease_dir()).write(dataclasses.replace(gone, owner_start=1))
    options = json.dumps({"token": MARK, "talks": True})
    main(["-p", "keyed_components", *command, "--backend-options", options])
    said = capsys.readouterr()
    assert ("nobody is let in" in said.out + said.err, MARK in said.out + said.err) == (True, False)


@pytest.mark.parametrize("command", [("doctor", "local"), ("sandboxes",), ("run", "t.jsonl")])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_options_at_the_wrong_place_of_a_command_are_not_quoted(capsys, command, quote):
    with pytest.raises(SystemExit):
        main([*command, f'{{"token": "{MARK}"}}'.replace('"', quote)])
    err = capsys.readouterr().err
    assert ("{…}" in err, MARK in err) == (True, False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.dictionaries(st.sampled_from("abc"), nested_structures(LEAVES | secret_structures())),
    place=st.sampled_from(("engine", "body")),
)
def test_whatever_lies_within_open_settings_is_shown_and_compared_without_its_secrets(registry, tmp_path, value, place):
    fields = (
        {"engine": "keyed", "engine_options": {"runtime_env": value}} if place == "engine" else {"extra_body": value}
    )
    made = config(tmp_path, **fields, backends={"unheard-of": value})
    assert MARK not in json.dumps(redact_settings(made, registry))
    assert MARK not in json.dumps(redact_settings(made, None))
    assert MARK not in json.dumps(redact_used_settings(made, registry))
    with pytest.raises(HermesError) as caught:
        config(tmp_path, **fields, group_size=value)
    assert MARK not in "".join(traceback.format_exception(caught.value))


def test_a_setting_that_is_named_after_a_tool_is_no_secret(registry, tmp_path):
    made = config(tmp_path, tool_result_overrides={"get_token": 500}, plugins={"prefer": {"tool:get_token": "a"}})
    shown = redact_settings(made, registry)
    assert (shown["tool_result_overrides"], shown["plugins"]["prefer"]) == ({"get_token": 500}, {"tool:get_token": "a"})
    assert secret_texts(made, registry) == frozenset()


def test_what_the_model_reads_is_shown_as_it_is_and_runs_when_it_was_printed(registry, tmp_path):
    """The system prompt is in every rollout's messages anyway."""
    prompt = 'Log in by connect(password="letmein", token=abcdef), see http://a:b@host and `--password=letmein`. x: '
    prompt += "(withheld)"
    made = config(tmp_path, system_prompt=prompt)
    assert redact_settings(made, registry)["system_prompt"] == prompt
    assert secret_texts(made, registry) == frozenset()
    assert RunConfig.parse(as_yaml(made), source="the test").system_prompt == prompt


def test_not_every_option_of_an_unused_backend_is_a_secret(registry, tmp_path):
    """A config can have the options of many backends, including ones that are not installed."""
    others = {"unheard-of": {"image": "python:3.11-slim", "token": MARK, "url": f"http://me:{MARK}-2@host"}}
    made = config(tmp_path, backends={**others, "keyed": {"by_name": {"a": f"{MARK}-3"}}})
    assert secret_texts(made, registry) == {MARK, f"{MARK}-2", f"{MARK}-3"}


async def test_a_secret_that_a_sink_repeats_is_in_no_file_and_no_traceback(registry, tmp_path):
    options = {"key": MARK}
    made = config(tmp_path, terminal_backend="local", sinks=[{"name": "keyed", "options": options}])
    await Run(made, registry, stream=io.StringIO()).execute()
    files = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert [name for name, text in files.items() if MARK in text] == []
    said = "keyed: OSError: [Errno 28] nothing was written: '/a/(withheld)'"
    assert json.loads(files["summary.json"])["run"]["sink_errors"] == {said: 1}
    closed = config(
        tmp_path, sinks=[{"name": "keyed", "options": {**options, "opens": False}}], out=str(tmp_path / "o")
    )
    with pytest.raises(HermesError, match="cannot begin: ExceptionGroup: two doors") as caught:
        await Run(closed, registry, stream=io.StringIO()).execute()
    assert MARK not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kee": MARK}, r"has no option 'kee'\n  → did you mean 'key'\? Known options: key, doors, opens$"),
        (
            {"key": MARK, "doors": [{"key": MARK, "nam": MARK}]},
            r"unknown option 'doors\.0\.nam'(?s:.*)→ did you mean 'name'\? Known options of doors\.0: name, key$",
        ),
    ],
)
async def test_a_misspelt_option_of_a_sink_is_named_without_what_it_holds(registry, tmp_path, options, said):
    made = config(tmp_path, terminal_backend="local", sinks=[{"name": "keyed", "options": options}])
    with pytest.raises(HermesError, match=said) as caught:
        await Run(made, registry, stream=io.StringIO()).execute()
    assert MARK not in "".join(traceback.format_exception(caught.value))
