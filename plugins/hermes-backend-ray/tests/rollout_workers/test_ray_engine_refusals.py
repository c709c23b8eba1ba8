"""A run that cannot start on a cluster ends with one clear message that names the worker."""

from __future__ import annotations

import os
import socket

import pytest
from ray_runs import PLUGINS, Runs, refusal_of, registry

from hermes_core.contracts.errors import ConfigError, HermesError


@pytest.fixture
def runs(ray_cluster, tmp_path):
    return Runs(tmp_path, ray_cluster.address)


def install(folder, version, source='"""Declares nothing."""\n'):
    """Install a distribution with one plugin into a folder."""
    info = folder / f"acme_rows-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-rows\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[hermes_core.plugins]\nrows = acme_rows_plugin\n")
    (folder / "acme_rows_plugin.py").write_text(source)
    return str(folder)


def env_with(folder):
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {"workers": 1, "runtime_env": {"env_vars": {"PYTHONPATH": path}}}


async def test_a_worker_with_another_version_is_refused_with_both_named(runs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "ours", "1.0"))
    known = registry(allow=(*PLUGINS, "acme-rows"))
    options = env_with(install(tmp_path / "theirs", "2.5"))
    with pytest.raises(
        ConfigError, match=r"worker w\d on node .*acme-rows:rows is 1\.0 \(.*\) here and 2\.5 \(.*\) there"
    ):
        await runs.run(runs.gated(1), known=known, options=options)
    assert runs.lines() == []


async def test_a_worker_with_other_code_of_the_same_version_is_refused(runs, tmp_path, monkeypatch):
    """The worker ran rollouts with the code on its node."""
    monkeypatch.syspath_prepend(install(tmp_path / "ours", "1.0"))
    known = registry(allow=(*PLUGINS, "acme-rows"))
    options = env_with(install(tmp_path / "theirs", "1.0", '"""Declares nothing, otherwise."""\n'))
    with pytest.raises(ConfigError, match=r"rows is 1\.0 \(code \w+\) here and 1\.0 \(code \w+\) there\n.*editable"):
        await runs.run(runs.gated(1), known=known, options=options)
    assert runs.lines() == []


async def test_a_plugin_that_a_worker_does_not_have_is_named(runs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "ours", "1.0"))
    known = registry(allow=(*PLUGINS, "acme-rows"))
    with pytest.raises(ConfigError, match=r"acme-rows:rows is 1\.0 \(.*\) here and missing there[^→]*→ install"):
        await runs.run(runs.gated(1), known=known, options={"workers": 1})


async def test_a_backend_that_the_workers_cannot_use_is_an_error_before_any_rollout(runs):
    with pytest.raises(HermesError, match=r"worker w\d on node .*gvisor"):
        await runs.run(runs.gated(1), options={"workers": 1}, isolation="gvisor")


async def test_a_model_that_the_workers_cannot_reach_is_an_error_before_any_rollout(runs):
    model = {"model": "http://127.0.0.1:9/v1", "model_name": "m", "model_retries": 0}
    with pytest.raises(HermesError, match=r"worker w\d on node .*127\.0\.0\.1:9"):
        await runs.run(runs.gated(1), options={"workers": 1}, **model)


async def test_a_cluster_without_room_is_an_error_within_the_timeout(runs):
    with pytest.raises(HermesError, match=r"no node of the cluster has what a worker needs: .*nowhere"):
        await runs.run(runs.gated(1), options={"workers": None, "resources": {"nowhere": 1}})
    with pytest.raises(HermesError, match=r"did not start within 1 s.*1 nowhere"):
        await runs.run(runs.gated(1), options={"workers": 1, "resources": {"nowhere": 1}, "start_timeout": 1})


def test_a_cluster_that_does_not_answer_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    kind, message, _ = refusal_of(f"127.0.0.1:{port}")
    assert kind == "ConfigError"
    assert f"engine 'ray': no Ray cluster listens on 127.0.0.1:{port}" in message


def test_a_run_through_ray_client_is_refused_also_if_auto_finds_it():
    kind, message, hint = refusal_of("auto", RAY_ADDRESS="ray://127.0.0.1:1")
    assert kind == "ConfigError"
    assert "engine 'ray': ray://127.0.0.1:1: Ray Client (ray://) cannot carry a run" in message
    assert "RAY_ADDRESS" in hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers_per_node": 2}, "expected either workers or workers_per_node"),
        ({"address": "ray://head:10001"}, "Ray Client"),
        ({"address": "head"}, "expected the address of a Ray cluster"),
        ({"worker": 3}, "worker"),
        ({"workers": 0}, "workers"),
    ],
)
async def test_a_wrong_option_is_one_clear_message(tmp_path, options, words):
    runs = Runs(tmp_path, "127.0.0.1:1")
    with pytest.raises(ConfigError, match=words):
        await runs.run(runs.gated(1), options=options)
