"""Resolve the servers of a config: listed ones, Atropos' local ports, or the nodes of a Slurm job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hermes_atropos.compat import APIServerConfig
from hermes_core.contracts.errors import ConfigError

LOCAL_PORTS: Final = range(9004, 9008)
"""Atropos' default servers."""
_FIRST_SLURM_PORT: Final = 9000
_GPUS_OF_A_NODE: Final = 8


def server_list(
    configs: Any,
    *,
    slurm: bool = False,
    environ: Mapping[str, str] | None = None,
    host_names: Callable[[str], Sequence[str]] | None = None,
) -> list[Any]:
    """Return server configs as a list; a bare `ServerBaseline` means Atropos' four local ports.

    With `slurm` the first config is repeated for every server of the job's inference nodes: those after the first
    NUM_TRAINING_NODES, with 8 / INFER_TP servers each. `host_names` expands a node list, by default with scontrol.
    """
    listed = _server_configs(configs)
    if not slurm:
        return listed
    environ = os.environ if environ is None else environ
    nodes = [node for node in (host_names or _host_names)(_job_nodes(environ)) if node]
    if len(nodes) < 2:
        return listed
    inference = nodes[int(environ.get("NUM_TRAINING_NODES", "0")) :]
    ports = range(_FIRST_SLURM_PORT, _FIRST_SLURM_PORT + _GPUS_OF_A_NODE // int(environ.get("INFER_TP", "1")))
    urls = [f"http://{node}:{port}/v1" for node in inference for port in ports]
    return [listed[0].model_copy(update={"base_url": url}) for url in urls]


def _server_configs(configs: Any) -> list[Any]:
    if isinstance(configs, list | tuple):
        return list(configs)
    if isinstance(configs, APIServerConfig):
        return [configs]
    fields = configs.model_dump()
    return [APIServerConfig(base_url=f"http://localhost:{port}/v1", **fields) for port in LOCAL_PORTS]


def _job_nodes(environ: Mapping[str, str]) -> str:
    nodes = environ.get("SLURM_JOB_NODELIST")
    if nodes is None:
        raise ConfigError("expected a Slurm job with slurm: true, got no SLURM_JOB_NODELIST", hint="slurm: false")
    return nodes


def _host_names(nodes: str) -> Sequence[str]:
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], check=True, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"slurm: true needs scontrol to expand {nodes!r}: {error}", hint="slurm: false") from error
    return answer.stdout.split()
