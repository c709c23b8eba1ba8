"""Backend and engine refuse Ray Client before they reach a cluster, and the backend refuses Ray with TLS."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from hermes_backend_ray.backend import RayBackend
from hermes_backend_ray.options import RayOptions
from hermes_backend_ray.rollout_workers.engine_options import EngineOptions
from hermes_core.contracts.errors import SandboxRefusedError
from hermes_core.contracts.sandbox import SandboxSpec

NO_CLIENT = "Ray Client (ray://) cannot carry a run: it reaches a proxy on the head node, and not the nodes"


@pytest.fixture
async def backend(tmp_path):
    """A backend on the cluster that `address: auto` finds."""
    made = RayBackend(RayOptions(address="auto"))
    made.lease_dir = tmp_path
    yield made
    await made.aclose()


@pytest.mark.parametrize("options", [RayOptions, EngineOptions])
def test_backend_and_engine_refuse_ray_client_with_the_same_sentence(options):
    with pytest.raises(ValidationError) as caught:
        options(address="ray://head:10001")
    assert f"ray://head:10001: {NO_CLIENT}; start the run on a node of the cluster" in str(caught.value)


async def test_ray_client_is_refused_if_auto_finds_it(monkeypatch, backend):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:1")
    with pytest.raises(SandboxRefusedError) as caught:
        await backend.open(SandboxSpec())
    assert caught.value.message == f"ray://127.0.0.1:1: {NO_CLIENT}"
    assert "RAY_ADDRESS decides what auto means" in caught.value.hint


async def test_ray_client_is_refused_if_this_process_is_connected_by_it(monkeypatch, backend):
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.util.client.ray.is_connected", lambda: True)
    with pytest.raises(SandboxRefusedError, match=re.escape(f"the connection of this process: {NO_CLIENT}")):
        await backend.open(SandboxSpec())


@pytest.mark.parametrize("value", ["1", "true", "True"])
async def test_the_backend_refuses_ray_with_tls(monkeypatch, backend, value):
    monkeypatch.setenv("RAY_USE_TLS", value)
    for attempt in (backend.check, backend.open):
        with pytest.raises(SandboxRefusedError, match=r"RAY_USE_TLS.*not encrypted") as caught:
            await attempt(SandboxSpec())
        assert "--engine ray" in caught.value.hint
