"""The engines that a run's config can use here, each started as its backend's own tests start it.

A generator for each backend: it yields the options that lead to its engine, and variables of the caller's environment.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = "hermes-test:2"
COMPONENTS = {
    "docker": "docker",
    "modal": "bwrap",
    "nomad": "bwrap",
    "singularity": "apptainer",
    "slurm": "slurm",
    "ssh": "sshd",
}


def support(package, module):
    """Import what a backend's own tests start their engine with."""
    sys.path.append(str(ROOT / package / "tests" / "support"))
    return importlib.import_module(module)


def local(_folder):
    yield {}, {}


def pool(_folder):
    yield {"backend": "local", "options": {"slots_per_agent": 2}, "max_hosts": 2, "slots_per_host": 2}, {}


def docker(_folder):
    build = ROOT / "hermes_backend_docker" / "tests" / "support" / "build_image.sh"
    known = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False)
    if known.returncode:
        subprocess.run([build, IMAGE], check=True, capture_output=True)
    yield {"image": IMAGE, "pull": "never"}, {}


def ssh(folder):
    server = support("plugins/hermes-backend-ssh", "sshd_server").SshServer(folder / "sshd").start()
    try:
        yield {**server.options, "root_dir": "/tmp"}, {}
    finally:
        server.stop()


def slurm(_folder):
    module = support("plugins/hermes-backend-slurm", "slurm_cluster")
    cluster = module.SlurmCluster().start()
    try:
        with cluster.allocation(2) as job:
            yield {"job_id": job}, module.environment_of(cluster)
    finally:
        cluster.stop()


def ray(folder):
    cluster = support("plugins/hermes-backend-ray", "ray_cluster").RayCluster.shared(folder)
    try:
        yield {"address": cluster.address}, {}
    finally:
        cluster.close()


def singularity(folder):
    images = support("plugins/hermes-backend-singularity", "small_images")
    yield (
        {
            "program": str(images.program()),
            "image": str(images.sandbox()),
            "cache_dir": str(folder / "cache"),
            "scratch_dir": str(folder / "scratch"),
        },
        {"APPTAINER_CACHEDIR": str(images.HERE / "blobs")},
    )


def nomad(_folder):
    """A stand-in, which joins the namespaces of its containers."""
    if os.geteuid() != 0:
        pytest.skip("the stand-in for Nomad joins the namespaces of its containers, which takes root")
    with support("plugins/hermes-backend-nomad", "nomad_standin").StandIn() as standin:
        yield {"nomad_address": standin.address, "sandbox_image": "hermes:1"}, {}


def modal(_folder):
    """A stand-in of the service, for the SDK as it is."""
    standin = support("hermes_backend_modal", "standin").StandIn()
    try:
        secret = {"MODAL_TOKEN_ID": "ak-one", "MODAL_TOKEN_SECRET": "as-one"}
        yield {}, {**secret, "MODAL_SERVER_URL": standin.url}
    finally:
        standin.close()


def marks(name):
    """The component that an engine needs, as marks of a test."""
    return [pytest.mark.component(COMPONENTS[name])] if name in COMPONENTS else []


def task(name):
    """One that needs nothing but a shell."""
    return {
        "id": name,
        "prompt": f"Write the word {name} into answer.txt",
        "verifier": {"name": "file_content", "options": {"checks": [{"path": "answer.txt", "equals": f"{name}\n"}]}},
        "solution": [f"echo {name} > answer.txt", "cat answer.txt"],
    }
