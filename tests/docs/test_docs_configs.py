"""Every config in docs/ is valid, and those whose engine can be started here are run."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
import run_engines
import yaml
from docs_pages import DOCS, ROOT, blocks, configs, page

from hermes_core.discovery import PluginSettings, load_plugins
from hermes_runner import RunConfig

CONFIGS = dict(configs())


def readmes():
    folders = (ROOT, *ROOT.glob("hermes_*"), *ROOT.glob("plugins/*"))
    found = [folder / "README.md" for folder in folders if (folder / "README.md").is_file()]
    return sorted(path for path in found if blocks(path.read_text(encoding="utf-8"), "yaml"))


@pytest.fixture(scope="module")
def registry():
    return load_plugins(PluginSettings(), environ={})


def test_every_yaml_block_is_a_whole_run_config_or_says_what_else_it_is():
    found = {
        block.partition("\n")[0].partition(",")[0]
        for path in DOCS.rglob("*.md")
        for block in blocks(path.read_text(), "yaml")
    }
    assert found == {"# run.yaml", "# profiles.yaml"}
    assert {name.partition("-")[0] for name in CONFIGS} >= {f"backends/{name}" for name in ("local", "docker", "pool")}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_the_docs_is_valid_with_the_options_of_its_backends(registry, name):
    config = RunConfig.parse(CONFIGS[name], source=name)
    options = {**config.backends, config.terminal_backend: config.backend_ref().options}
    for backend, values in options.items():
        registry.load("backend", backend).Options.model_validate(values)
        spec = registry.spec("backend", backend)
        if backend == config.terminal_backend:
            assert config.isolation in {None, *spec.isolation}
            assert config.network in {"full", *spec.networks}
    for member in options.get("pool", {}).get("backends", ()):
        registry.load("backend", member["backend"]).Options.model_validate(member["options"])
    if config.engine != "local":
        registry.load("engine", config.engine).Options.model_validate(config.engine_options)
    assert (ROOT / config.tasks).is_file()


@pytest.mark.parametrize("readme", [str(path.relative_to(ROOT)) for path in readmes()])
def test_every_config_of_a_readme_is_valid_with_the_options_of_its_backends(registry, readme):
    """Some are about a part of a config and leave the tasks out."""
    for block in blocks((ROOT / readme).read_text(encoding="utf-8"), "yaml"):
        config = RunConfig.parse({"tasks": "-", **yaml.safe_load(block)}, source=readme)
        options = {**config.backends, config.terminal_backend: config.backend_ref().options}
        for backend, values in options.items():
            registry.load("backend", backend).Options.model_validate(values)


def test_the_profile_of_the_page_is_taken(monkeypatch, tmp_path, registry):
    [text] = [block for block in blocks(page("backends/modal.md"), "yaml") if block.startswith("# profiles.yaml")]
    (tmp_path / "profiles.yaml").write_text(text)
    options = {"profile": "gpu", "profiles_file": str(tmp_path / "profiles.yaml")}
    assert registry.load("backend", "modal").Options.model_validate(options).gpu == "A10G"


def engine_of(config):
    """The engine that a config needs besides this machine: its backend's, or that of a pool's member."""
    if config.get("engine") == "ray":
        return "ray"
    given = config.get("backend_options", {})
    members = [member["backend"] for member in given.get("backends", ())] or [given.get("backend", "local")]
    return next((member for member in members if member != "local"), config["terminal_backend"])


def runnable_configs():
    for name, config in CONFIGS.items():
        engine = engine_of(config)
        quick = engine in {"local", "pool"} and config.get("isolation") != "bwrap"
        marks = [*run_engines.marks(engine), *([] if quick else [pytest.mark.slow])]
        if config.get("isolation") == "bwrap":
            marks.append(pytest.mark.component("bwrap"))
        yield pytest.param(name, getattr(run_engines, engine), id=name, marks=marks)


@pytest.fixture
def engine(request, tmp_path):
    yield from request.param(tmp_path)


def on_this_engine(config, options):
    """Return a config of the docs with the engine's own address, login and image in place of the page's."""
    if config.get("engine") == "ray":
        return {**config, "engine_options": {**config["engine_options"], **options}}
    given = dict(config.get("backend_options", {}))
    if config["terminal_backend"] != "pool":
        return {**config, "backend_options": {**given, **options}}
    if "backend" in given:
        return {**config, "backend_options": {**given, "options": {**given["options"], **options}}}
    members = [
        member if member["backend"] == "local" else {**member, "options": {**member["options"], **options}}
        for member in given["backends"]
    ]
    return {**config, "backend_options": {**given, "backends": members}}


@pytest.fixture
def open_folder():
    """A folder for temporary files that every user may enter: what other runs have left in /tmp is theirs."""
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        Path(folder).chmod(0o1777)
        yield folder


@pytest.mark.timeout(600)  # starting an engine is in it, besides the two commands, which have limits of their own
@pytest.mark.parametrize(("name", "engine"), [*runnable_configs()], indirect=["engine"])
def test_a_config_of_the_docs_runs_its_tasks_and_leaves_nothing(name, engine, hermes, tmp_path, open_folder):
    options, environment = engine
    config = {**on_this_engine(CONFIGS[name], options), "mistake_rate": 0, "max_tasks": 2, "group_size": 2}
    # The small images of the tests lack what the example tasks are about.
    small = config["terminal_backend"] in {"docker", "singularity"}
    tasks = "".join(f"{json.dumps(run_engines.task(word))}\n" for word in ("one", "two"))
    (tmp_path / "tasks.jsonl").write_text(tasks)
    config["tasks"] = "tasks.jsonl" if small else str(ROOT / config["tasks"])
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    # What is tested is what is imported here, wherever the command would find it by itself.
    code = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **environment,
        "PATH": os.environ["PATH"],
        "XDG_STATE_HOME": str(tmp_path),
        "PYTHONPATH": code,
        "TMPDIR": str(open_folder),
    }
    result = hermes("run", "--config", "run.yaml", env=environment, seconds=250)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [json.loads(line) for line in (tmp_path / config["out"] / "rollouts.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0] * 4
    wanted = config.get("isolation")
    assert {row["provenance"]["sandbox"]["isolation"] for row in rows} <= {wanted} if wanted else True
    left = hermes("sandboxes", "ps", "--json", env=environment)
    assert json.loads(left.stdout)["sandboxes"] == []
