"""`hermes-core doctor` with every plugin installed and something taken away: what is missing, and what to type."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hermes_core.cli import main
from hermes_core.discovery.installation import distributions
from hermes_testing.servers import closed_port


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """No engine is near: no variable names one, no program is on PATH, no file of this user's is read."""
    # An engine that is there would pull the default image.
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    for name in (
        "NOMAD_ADDR",
        "MODAL_TOKEN_ID",
        "MODAL_TOKEN_SECRET",
        "SLURM_CONF",
        "SLURM_JOB_ID",
        "RAY_ADDRESS",
        "TERMINAL_SSH_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "modal.toml"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def doctor(capsys):
    def run(*arguments):
        status = main(["doctor", *arguments], environ={})
        return status, capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def refusing():
    """A port on which nobody listens."""
    with closed_port() as port:
        yield port


CASES = {
    "docker": ({"docker_host": "unix:///nowhere.sock"}, "no Docker engine answers at unix:///nowhere.sock", "start it"),
    "docker address": ({"docker_host": "ssh://lab"}, "got 'ssh://lab'", "ssh -nNT -L"),
    "modal": ({}, "expected a token for Modal, got none", "modal token new"),
    "nomad": ({"nomad_address": "http://127.0.0.1:{port}"}, "Nomad is not reachable", "start it (`nomad agent -dev`"),
    "pool": ({}, "the pool has no backend", "hermes-core doctor pool --backend-options '{"),
    "pool member": ({"backends": [{"backend": "ssh"}]}, "host is missing", "set the option host of ssh"),
    "ssh": ({}, "host is missing", "hermes-core doctor ssh --backend-options '{"),
    "ssh refused": ({"host": "127.0.0.1", "port": "{port}"}, "nothing listens on 127.0.0.1", "start sshd there"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_backend_lacks_is_named_with_the_next_command(doctor, name, refusing):
    options, message, command = CASES[name]
    backend = name.split()[0]
    given = json.dumps(options).replace("{port}", str(refusing))
    status, out = doctor(backend, "--backend-options", given)
    assert status == 1
    assert f"{backend}  does not work here" in out
    assert message in out
    assert f"→ {command}" in out


def test_ray_without_an_address_is_named_with_the_next_command():
    # In a process of its own: one that has initialised Ray needs none.
    command = [sys.executable, "-m", "hermes_core.cli", "doctor", "ray"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "has no address" in result.stdout
    assert """→ hermes-core doctor ray --backend-options '{"address": "auto"}'""" in result.stdout


@pytest.mark.parametrize(
    ("backend", "message", "command"),
    [
        (
            "slurm",
            "the programs srun, salloc, squeue, scontrol, scancel, sinfo are not on PATH",
            "apt-get install slurm",
        ),
        ("singularity", "no program apptainer or singularity is on PATH", "install Apptainer"),
    ],
)
def test_a_program_that_is_missing_is_named_with_what_brings_it(
    doctor, monkeypatch, tmp_path, backend, message, command
):
    monkeypatch.setenv("PATH", str(tmp_path))
    _, out = doctor(backend)
    assert message in out
    assert f"→ {command}" in out


@pytest.mark.parametrize(
    ("backend", "package"), [("modal", "modal"), ("ray", "ray"), ("singularity", "spython"), ("nomad", "aiohttp")]
)
def test_a_package_that_is_missing_is_named_with_its_pip_command(doctor, monkeypatch, backend, package):
    known = distributions.installed_version
    monkeypatch.setattr(distributions, "installed_version", lambda name: None if name == package else known(name))
    status, out = doctor(backend)
    assert status == 1
    assert f"the package {package} is not installed" in out
    assert f"→ pip install '{package}" in out


def test_probing_names_a_package_that_is_missing_as_the_doctor_does(capsys, monkeypatch):
    known = distributions.installed_version
    monkeypatch.setattr(distributions, "installed_version", lambda name: None if name == "ray" else known(name))
    assert main(["sandboxes", "probe", "ray"], environ={}) == 1
    assert "the package ray is not installed\n    → pip install 'ray" in capsys.readouterr().out


BREAKS_OVER_A_SPEC = """
from hermes_core import hookimpl
from hermes_core.specs import BackendSpec
from hermes_sandbox.local.backend import LocalBackend


@hookimpl
def hermes_backends():
    return [BreaksOverASpec.declaration]


class BreaksOverASpec(LocalBackend):
    declaration = BackendSpec(name="breaks", target="breaks_over_a_spec:BreaksOverASpec", summary="Breaks.")

    async def check(self, spec):
        if spec.memory_mb:
            raise KeyError("memory_mb")
"""


def test_a_backend_that_breaks_over_what_a_config_asks_has_its_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "breaks_over_a_spec.py").write_text(BREAKS_OVER_A_SPEC)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = tmp_path / "run.yaml"
    config.write_text("terminal_backend: breaks\nsandbox: {memory_mb: 64}\n")
    assert main(["-p", "breaks_over_a_spec", "doctor", "--config", str(config)], environ={}) == 1
    out = capsys.readouterr().out
    assert "breaks  works at none" in out
    assert f"{config}: KeyError: 'memory_mb' (" in out


def test_an_engine_that_does_not_answer_is_asked_once(capsys, refusing):
    """Each level would wait for it anew, a minute for some."""
    options = json.dumps({"nomad_address": f"http://127.0.0.1:{refusing}"})
    main(["sandboxes", "probe", "nomad", "--json", "--backend-options", options], environ={})
    [row] = json.loads(capsys.readouterr().out)["backends"]
    levels = [one for one in row["findings"] if one["feature"] == "isolation"]
    assert [one["works"] for one in levels] == [False, None]
    assert levels[0]["hint"] == levels[1]["hint"]


@pytest.mark.component("docker")
def test_the_default_image_is_not_pulled_unasked(doctor, monkeypatch):
    """It has more than a gigabyte, and a run names another one."""
    monkeypatch.delenv("DOCKER_HOST")
    _, out = doctor("docker")
    if "is not on the engine" not in out:
        pytest.skip("the default image is here")
    assert """→ hermes-core doctor docker --backend-options '{"image": "nikolaik/""" in out
    assert "cannot be pulled" not in out


@pytest.mark.component("bwrap")
def test_a_folder_that_the_sandboxes_user_cannot_enter_is_told_from_a_missing_bubblewrap(doctor, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only a caller that is root becomes another user")
    tmp_path.chmod(0o700)
    _, out = doctor("local", "--backend-options", json.dumps({"root_dir": str(tmp_path)}))
    assert "bwrap: isolation 'bwrap' does not work here" in out
    assert "→ set the backend's option root_dir to a directory that every user may enter" in out


def test_an_engine_that_is_down_is_the_reason_at_every_level(doctor, monkeypatch, tmp_path, refusing):
    """Not that the nodes have no bubblewrap, which nobody has seen."""
    (tmp_path / "slurm.conf").write_text(f"ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort={refusing}\n")
    for program in ("srun", "salloc", "squeue", "scontrol", "scancel", "sinfo"):
        path = tmp_path / program
        path.write_text("#!/bin/sh\necho 'salloc: error: Unable to contact slurm controller' >&2\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _, out = doctor("slurm", "--backend-options", json.dumps({"conf": str(tmp_path / "slurm.conf")}))
    assert "Unable to contact slurm controller" in out
    assert "→ `scontrol ping` must answer" in out
    assert "bubblewrap" not in out


def test_a_config_is_tried_as_it_stands(doctor, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text(
        "terminal_backend: docker\nbackends: {docker: {docker_host: 'unix:///nowhere.sock'}, local: {}}\n"
    )
    status, out = doctor("--config", str(config))
    assert status == 1
    assert "docker  does not work here" in out
    assert "local   works at none" in out
    assert "modal" not in out
    status, _ = doctor("local", "--config", str(config))
    assert status == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [("isolation: container", "isolation 'container'"), ("sandbox: {memory_mb: 64}\nisolation: none", "memory")],
)
def test_what_a_config_asks_of_a_backend_that_works_is_tried_as_well(doctor, tmp_path, keys, message):
    """A run would stop at it; that some other level works helps nobody."""
    config = tmp_path / "run.yaml"
    config.write_text(f"terminal_backend: local\nbackend_options: {{slots_per_agent: 2}}\n{keys}\n")
    status, out = doctor("--config", str(config))
    assert status == 1
    assert "local  works at none" in out
    assert f"{config}: " in out
    assert message in out.split(f"{config}: ")[1]


READER = """
from hermes_core.contracts.sandbox import RunBackends
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_run_backends(config):
    if config.name != "lab.toml":
        return None
    if "broken" in config.read_text():
        raise RuntimeError("not today")
    sandbox = SandboxSpec(memory_mb=64, isolation="none")
    return RunBackends(backend="local", sandbox=sandbox, options={"local": {"slots_per_agent": 2}})
"""


@pytest.fixture
def reader(tmp_path):
    """A plugin that reads the configs of a lab's own trainer."""
    path = tmp_path / "lab_reader.py"
    path.write_text(READER)
    return str(path)


def test_a_config_of_a_plugins_own_format_is_read_by_its_hook(reader, tmp_path, capsys):
    config = tmp_path / "lab.toml"
    config.write_text("backend = 'local'")
    assert main(["-p", reader, "doctor", "--config", str(config)], environ={}) == 1
    out = capsys.readouterr().out
    assert "local  works at none" in out
    assert "memory" in out.split(f"{config}: ")[1]


def test_a_hook_that_breaks_over_a_config_is_told_with_its_plugin(reader, tmp_path, capsys):
    config = tmp_path / "lab.toml"
    config.write_text("broken")
    assert main(["-p", reader, "doctor", "--config", str(config)], environ={}) == 2
    assert "hermes_run_backends of plugin" in (err := capsys.readouterr().err)
    assert "RuntimeError: not today" in err


def test_a_config_that_two_plugins_read_is_settled_by_the_user(reader, tmp_path, capsys):
    config = tmp_path / "lab.toml"
    config.write_text("terminal_backend: local\n")
    assert main(["-p", reader, "doctor", "--config", str(config)], environ={}) == 2
    err = capsys.readouterr().err
    assert "is read by 2 plugins: hermes-runner:runner, " in err
    assert "-p no:" in err


@pytest.mark.parametrize(
    ("text", "message"), [("isolatoin: none", "isolatoin"), ("- a list", "run.yaml"), (None, "check the path")]
)
def test_what_is_wrong_with_a_config_is_told_by_whoever_reads_it(reader, tmp_path, capsys, text, message):
    config = tmp_path / "run.yaml"
    if text is not None:
        config.write_text(text)
    assert main(["-p", reader, "doctor", "--config", str(config)], environ={}) == 2
    assert message in capsys.readouterr().err


def test_a_config_that_no_plugin_reads_names_the_package_that_would(tmp_path, capsys):
    config = tmp_path / "run.yaml"
    config.write_text("terminal_backend: local\n")
    assert main(["-p", "no:runner", "doctor", "--config", str(config)], environ={}) == 2
    err = capsys.readouterr().err
    assert "expected a plugin that reads the config of a run" in err
    assert f"→ hermes-core -p hermes-runner doctor --config {config}" in err


def test_a_broken_plugin_that_the_config_disables_is_no_trouble(doctor, tmp_path, monkeypatch):
    """Of what the command line admits, only what the run's own settings leave has to load."""
    site = tmp_path / "site"
    info = site / "acme_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hermes_core.plugins]\nbroken = acme_not_there\n")
    monkeypatch.syspath_prepend(str(site))
    config = tmp_path / "run.yaml"
    config.write_text("terminal_backend: local\nisolation: none\nplugins: {disable: [acme-broken]}\n")
    arguments = ["doctor", "local", "--config", str(config)]
    assert main(arguments, environ={"HERMES_PLUGINS_STRICT": "1"}) == 0


def test_an_answer_of_a_hook_that_says_nothing_of_backends_names_its_plugin(tmp_path, capsys):
    path = tmp_path / "wrong_reader.py"
    path.write_text(
        "from hermes_core.hookspecs import hookimpl\n\n\n"
        "@hookimpl\ndef hermes_run_backends(config):\n    return {'backend': 'local'}\n"
    )
    assert main(["-p", str(path), "-p", "no:runner", "doctor", "--config", "lab.toml"], environ={}) == 2
    assert "expected RunBackends, got dict" in capsys.readouterr().err


def test_a_config_that_all_of_its_readers_refuse_is_told_with_what_each_says(tmp_path, capsys):
    path = tmp_path / "strict_reader.py"
    path.write_text(
        "from hermes_core.contracts.errors import ConfigError\nfrom hermes_core.hookspecs import hookimpl\n\n\n"
        "@hookimpl\ndef hermes_run_backends(config):\n    raise ConfigError('it is no TOML')\n"
    )
    config = tmp_path / "run.yaml"
    config.write_text("isolatoin: none")
    assert main(["-p", str(path), "doctor", "--config", str(config)], environ={}) == 2
    err = capsys.readouterr().err
    assert "it is no TOML" in err
    assert "isolatoin" in err


def test_a_name_that_nobody_declares_is_told_before_anything_is_printed(capsys, tmp_path):
    assert main(["doctor", "dokcer"], environ={}) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "did you mean 'docker'?" in err


def test_all_are_tried_and_each_reason_is_told_once_with_a_next_command(doctor, monkeypatch):
    """Also where one of them breaks in a way that it does not know itself, as `local` does without even `rm`."""
    monkeypatch.setenv("PATH", "/nowhere")
    _, out = doctor()
    assert out.count("no program apptainer or singularity is on PATH") == 1
    assert "for the reason that apptainer has, above" in out
    assert "ssh          does not work here" in out
    lines = out.splitlines()
    reasons = [(number, line) for number, line in enumerate(lines) if line.startswith("    ") and "→" not in line]
    unanswered = [
        line
        for number, line in reasons
        if "above" not in line and "processes at" not in line and "→" not in "".join(lines[number + 1 :][:1])
    ]
    assert unanswered == []


def test_lines_are_broken_for_a_terminal_and_not_for_a_pipe(doctor, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    _, piped = doctor("docker", "--backend-options", '{"docker_host": "unix:///nowhere.sock"}')
    monkeypatch.setattr("hermes_sandbox.commands.report_printer.is_terminal", lambda _stream: True)
    _, shown = doctor("docker", "--backend-options", '{"docker_host": "unix:///nowhere.sock"}')
    assert max(map(len, piped.splitlines())) > 80
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == piped.split()
