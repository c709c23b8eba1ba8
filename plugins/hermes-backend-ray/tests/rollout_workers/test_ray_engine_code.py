"""The code of two processes is compared by the contents of files, wherever they are, and by nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hermes_backend_ray.rollout_workers.code_versions import loaded_code
from hermes_core.discovery import PluginSettings, load_plugins

SOURCE = """
from hermes_core import hookimpl
from hermes_core.specs import ToolsetSpec, VerifierSpec


@hookimpl
def hermes_verifiers():
    return [VerifierSpec(name="rows", summary="Rows.", target="acme.judges.rows:Rows")]
"""
LOOK = """
import json, sys
from hermes_backend_ray.rollout_workers.code_versions import loaded_code
from hermes_core.discovery import PluginSettings, load_plugins
settings = PluginSettings(allow=tuple(sys.argv[1].split(",")), extra=tuple(sys.argv[2:]))
print(json.dumps(loaded_code(load_plugins(settings, environ={}).plugins)))
"""


@pytest.fixture
def install(tmp_path):
    """Install the packages of a distribution into a folder, with its metadata beside them or elsewhere."""

    def put(folder, *, metadata=None, **changed):
        texts = {
            "acme_rows/__init__.py": "",
            "acme_rows/plugin.py": SOURCE,
            "acme_rows/deep/rules.py": "LIMIT = 1\n",
            "acme/judges/__init__.py": "",
            "acme/judges/rows.py": "class Rows:\n    def score(self, result, context): ...\n",
            **{name.replace("__", "/") + ".py": text for name, text in changed.items()},
        }
        info = tmp_path / (metadata or folder) / "acme_rows-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rows\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[hermes_core.plugins]\nrows = acme_rows.plugin\n")
        for name, text in texts.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / folder

    return put


def code_of(*folders, allow="acme-rows", extra=()):
    """Return the code versions of another process that has these folders on its path."""
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-c", LOOK, allow, *map(str, extra)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_equal_files_are_equal_code_however_they_are_installed(install, tmp_path):
    wheel = code_of(install("wheel"))
    editable = code_of(install("checkout", metadata="site"), tmp_path / "site")
    assert wheel == editable
    assert wheel["acme-rows:rows"].startswith("1.0 (code ")


@pytest.mark.parametrize("changed", ["acme_rows__plugin", "acme_rows__deep__rules", "acme__judges__rows"])
def test_one_different_file_is_different_code_of_the_same_version(install, changed):
    """Only versions were compared, so a worker ran code that differed from what the developer had changed."""
    text = {
        "acme_rows__plugin": SOURCE,
        "acme__judges__rows": "class Rows:\n    def score(self, result, context): ...\n",
    }
    other = install("other", **{changed: text.get(changed, "") + "# changed\n"})
    ours, theirs = code_of(install("same")), code_of(other)
    assert {name for name in ours if ours[name] != theirs[name]} == {"acme-rows:rows"}


def test_caches_and_neighbouring_packages_do_not_count_as_code_of_a_plugin(install):
    other = install("other", acme__another="SOMEBODY = 'elses'\n", acme_more="")
    (other / "acme_rows" / "notes.txt").write_text("a note")
    (other / "acme_rows" / "__pycache__").mkdir()
    (other / "acme_rows" / "__pycache__" / "plugin.cpython-311.pyc").write_bytes(b"cache")
    assert code_of(install("same")) == code_of(other)


def test_a_plugin_named_by_its_path_is_compared_by_its_file(install, tmp_path):
    folder = install("site")
    for name, more in (("one", ""), ("two", ""), ("three", "# changed\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "judge.py").write_text(SOURCE + more)
    one, two, three = (code_of(folder, extra=[tmp_path / name / "judge.py"]) for name in ("one", "two", "three"))
    assert one == two != three
    assert {name for name in one if one[name] != three[name]} == {"local:judge"}


def test_the_core_is_compared_by_its_files_too():
    known = load_plugins(PluginSettings(allow=()), environ={})
    (only,) = loaded_code(known.plugins).items()
    assert only[0] == "hermes-agent-core"
    assert "(code " in only[1]
