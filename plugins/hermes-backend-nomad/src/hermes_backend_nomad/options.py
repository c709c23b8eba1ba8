"""Options of backend `nomad`, with the names of `AgentEnvConfig` where it has the same field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from hermes_core.redaction import redact_address
from hermes_sandbox.backends import AgentOptions, InsidePath, Seconds

REQUESTS: Final = 8
"""Connections to Nomad that are reserved for requests."""
SPARE: Final = 4
"""Connections that are reserved for short programs, such as the one that makes a workspace read-only."""
DEFAULT_ADDRESS: Final = "http://localhost:4646"
DOCKER_KEYS: Final = frozenset(
    [
        "advertise_ipv6_address",
        "args",
        "auth",
        "auth_soft_fail",
        "cap_add",
        "cap_drop",
        "command",
        "cpu_cfs_period",
        "cpu_hard_limit",
        "devices",
        "dns_options",
        "dns_search_domains",
        "dns_servers",
        "entrypoint",
        "extra_hosts",
        "force_pull",
        "hostname",
        "image",
        "image_pull_timeout",
        "interactive",
        "ipc_mode",
        "ipv4_address",
        "ipv6_address",
        "labels",
        "load",
        "logging",
        "mac_address",
        "memory_hard_limit",
        "mount",
        "mounts",
        "network_aliases",
        "network_mode",
        "pid_mode",
        "pids_limit",
        "port_map",
        "ports",
        "privileged",
        "readonly_rootfs",
        "runtime",
        "security_opt",
        "shm_size",
        "storage_opt",
        "sysctl",
        "tty",
        "ulimit",
        "userns_mode",
        "uts_mode",
        "volume_driver",
        "volumes",
        "work_dir",
    ]
)
"""The keys of Nomad's docker driver. Unknown keys pass registration and fail when the container starts."""
_OURS: Final = frozenset(
    {"args", "cap_add", "cap_drop", "command", "entrypoint", "image", "network_mode", "pids_limit", "privileged"}
)
"""The keys that this backend sets."""


class NomadOptions(AgentOptions):
    """The options for the Nomad cluster and its containers."""

    nomad_address: str | None = Field(default=None, repr=False)
    """http://HOST:PORT or https://HOST:PORT; default NOMAD_ADDR, or http://localhost:4646. A user and password in it,
    for a proxy in front of Nomad, are treated as secrets like the token.
    """
    token: SecretStr | None = None
    """ACL token; default NOMAD_TOKEN. Never logged and never in a lease."""
    region: str | None = None
    """Region; default NOMAD_REGION, or that of the agent at the address."""
    namespace: str | None = None
    """Namespace; default NOMAD_NAMESPACE, or Nomad's default."""
    datacenters: list[str] = Field(default_factory=lambda: ["dc1"], min_length=1)
    ca_cert: Path | None = None
    """Certificate authority of an https address; default NOMAD_CACERT, or this machine's."""
    client_cert: Path | None = None
    """Client certificate; default NOMAD_CLIENT_CERT."""
    client_key: Path | None = None
    """Client key; default NOMAD_CLIENT_KEY."""
    tls_server_name: str | None = None
    """The name in the server's certificate, if it differs from the address; default NOMAD_TLS_SERVER_NAME."""

    sandbox_job_id: str = Field(default="atropos-sandbox-agent-env", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Prefix of the job's id; the rest is unique, so that two runs never share a job."""
    sandbox_image: str = "atropos-sandbox:local"
    """Image for a task without one; needs Python 3.8 and bash."""
    driver: Literal["docker", "singularity"] = "docker"
    """`singularity` runs Apptainer through Nomad's driver raw_exec."""
    singularity_image: str | None = None
    """Image file or URI for driver singularity, as the nodes see it."""
    singularity_program: str = "apptainer"
    slots_per_container: int = Field(default=10, ge=1, le=1024)
    """Rollouts that share a container at isolation `container+slot`."""
    min_containers: int = Field(default=1, ge=0)
    """Containers that are kept when idle, once they were needed."""
    max_containers: int = Field(default=10, ge=1)
    idle_timeout: float = Field(default=60.0, ge=0)
    """Seconds after which an idle container above `min_containers` is stopped."""
    acquire_timeout_s: Seconds = 30.0
    """Seconds to wait for a slot when all containers are full and no slot is given back; the start of a container is
    limited by `start_timeout` instead.
    """
    purge_job_on_start: bool = False
    """At the start, purge jobs of this `sandbox_job_id` whose owners on this machine are dead."""
    purge_job_on_shutdown: bool = True
    """Remove the job from Nomad's list at the end; otherwise it stays listed as dead."""
    tool_batch_window_ms: int = Field(default=0, ge=0)
    """Milliseconds for which requests to a container are collected; each call takes that much longer."""
    tool_max_batch_size: int = Field(default=200, ge=1)
    """Accepted from old configs without effect: requests share one stream."""

    cpu: int = Field(default=500, ge=1)
    """MHz of a container for Nomad's scheduler; a share, not a limit."""
    memory: int = Field(default=512, ge=10)
    """Megabytes of a container; a limit with driver docker."""
    core_mhz: int | None = Field(default=None, ge=1)
    """MHz of one core of the nodes; needed to limit a sandbox to a number of cores."""
    first_uid: int | None = Field(default=None, ge=1, le=1 << 31)
    """The uid before that of a container's first slot; by default different for each container. Set it for engines that
    map users (userns-remap, rootless), whose containers only have 65,536 uids; the slots then share one process limit.
    """
    privileged: bool = False
    """Run privileged containers, which isolates less and is recorded."""
    docker_config: dict[str, Any] = Field(default_factory=dict)
    """Additional keys of the docker driver's config: auth, volumes, ulimit, force_pull, runtime, …"""
    workspace: InsidePath = "/workspace"
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the commands."""

    max_connections: int = Field(default=100, gt=2 * REQUESTS)
    """Maximum number of concurrent connections to Nomad's agent: one per container, 12 for requests and short programs.
    The agent's own limit per client is `limits.http_max_conns_per_client`, 100 by default; it breaks off any more.
    """
    request_timeout: Seconds = 10.0
    """Timeout of a request to Nomad in seconds."""
    start_timeout: Seconds = 120.0
    """Seconds within which a new container must run, including the pull of its image."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The mount points of volumes, whose files outlive the container."""
        named = (str(volume).split(":") for volume in self.docker_config.get("volumes") or ())
        mounts = [*(self.docker_config.get("mount") or ()), *(self.docker_config.get("mounts") or ())]
        lasting = (mount for mount in mounts if isinstance(mount, dict) and mount.get("type") != "tmpfs")
        return (*(parts[1] for parts in named if len(parts) > 1), *(str(mount.get("target")) for mount in lasting))

    @field_validator("nomad_address")
    @classmethod
    def _with_scheme(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError(
                f"expected http://HOST:PORT or https://HOST:PORT as nomad_address, got {redact_address(value)!r}"
            )
        return value

    @field_validator("docker_config")
    @classmethod
    def _check_driver_keys(cls, value: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(set(value) - DOCKER_KEYS):
            raise ValueError(
                f"Nomad's docker driver has no {', '.join(unknown)}: the container would be registered and never start"
            )
        if ours := sorted(set(value) & _OURS):
            raise ValueError(f"docker_config cannot set {', '.join(ours)}: the backend sets it; see its other options")
        # A registry's password is never displayed and never in a lease.
        return {**value, "auth": _with_secrets(value["auth"])} if "auth" in value else value

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.min_containers > self.max_containers:
            raise ValueError(f"min_containers {self.min_containers} is above max_containers {self.max_containers}")
        if self.max_containers > (room := self.max_connections - REQUESTS - SPARE):
            raise ValueError(
                f"max_containers {self.max_containers} is above {room}, the most for max_connections "
                f"{self.max_connections}: use more slots_per_container, or raise max_connections with "
                "Nomad's own limits.http_max_conns_per_client"
            )
        if (self.driver == "singularity") != (self.singularity_image is not None):
            raise ValueError("driver singularity and singularity_image go together: set both or neither")
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("client_cert and client_key go together: set both or neither")
        return self


def _with_secrets(auth: Any) -> Any:
    if isinstance(auth, list):
        return [_with_secrets(one) for one in auth]
    if not isinstance(auth, dict) or not isinstance(auth.get("password"), str):
        return auth
    return {**auth, "password": SecretStr(auth["password"])}
