"""Options of backend `nomad`; the names are those of `AgentEnvConfig`, where it has the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from hermes_core.redaction import redact_address
from hermes_sandbox.backends import AgentOptions, InsidePath, Seconds

REQUESTS: Final = 8
"""Connections to Nomad that are kept for requests."""
SPARE: Final = 4
"""Connections that are kept for short programs, as those that make a workspace read-only."""
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
"""What Nomad's docker driver knows. Others pass registration and fail when the container is to start."""
_OURS: Final = frozenset(
    {"args", "cap_add", "cap_drop", "command", "entrypoint", "image", "network_mode", "pids_limit", "privileged"}
)
"""What this backend decides."""


class NomadOptions(AgentOptions):
    """What a run's config says about its Nomad cluster and the containers there."""

    nomad_address: str | None = Field(default=None, repr=False)
    """http://HOST:PORT or https://HOST:PORT; NOMAD_ADDR if not given, else http://localhost:4646. A user and password
    in it, for a proxy in front of Nomad, are kept as the token is."""
    token: SecretStr | None = None
    """ACL token; NOMAD_TOKEN if not given. Never logged and never in a lease."""
    region: str | None = None
    """NOMAD_REGION if not given, else that of the agent at the address."""
    namespace: str | None = None
    """NOMAD_NAMESPACE if not given, else the default one."""
    datacenters: list[str] = Field(default_factory=lambda: ["dc1"], min_length=1)
    ca_cert: Path | None = None
    """Authority of an https address; NOMAD_CACERT if not given, else this machine's."""
    client_cert: Path | None = None
    """NOMAD_CLIENT_CERT if not given."""
    client_key: Path | None = None
    """NOMAD_CLIENT_KEY if not given."""
    tls_server_name: str | None = None
    """The name in the server's certificate, where it is not the address's; NOMAD_TLS_SERVER_NAME if not given."""

    sandbox_job_id: str = Field(default="atropos-sandbox-agent-env", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Start of the job's id; what follows is the caller's own, so that two runs never share a job."""
    sandbox_image: str = "atropos-sandbox:local"
    """Image where a task names none; needs Python 3.8 and bash."""
    driver: Literal["docker", "singularity"] = "docker"
    """`singularity` runs Apptainer by Nomad's driver raw_exec."""
    singularity_image: str | None = None
    """Image file or URI for driver singularity, as the nodes see it."""
    singularity_program: str = "apptainer"
    slots_per_container: int = Field(default=10, ge=1, le=1024)
    """Rollouts that share a container at isolation `container+slot`."""
    min_containers: int = Field(default=1, ge=0)
    """Containers that stay although nobody uses them, once they have been needed."""
    max_containers: int = Field(default=10, ge=1)
    idle_timeout: float = Field(default=60.0, ge=0)
    """Seconds after which a container above `min_containers` that nobody uses is stopped."""
    acquire_timeout_s: Seconds = 30.0
    """Seconds to wait for a slot where all containers that may be are full and none is given back; the start of one is
    bounded by `start_timeout` instead."""
    purge_job_on_start: bool = False
    """First purge the jobs of this `sandbox_job_id` whose owners have died on this machine."""
    purge_job_on_shutdown: bool = True
    """Remove the job from Nomad's list at the end; if not, it is stopped and stays listed as dead."""
    tool_batch_window_ms: int = Field(default=0, ge=0)
    """Milliseconds for which requests to a container are gathered; each call takes that much longer."""
    tool_max_batch_size: int = Field(default=200, ge=1)
    """Taken from old configs: requests travel in one stream, in which there is nothing to count."""

    cpu: int = Field(default=500, ge=1)
    """MHz that a container is given, shared out by Nomad; a share, not a limit."""
    memory: int = Field(default=512, ge=10)
    """Megabytes that a container may use; its limit with driver docker."""
    core_mhz: int | None = Field(default=None, ge=1)
    """MHz of one core of the nodes; needed to limit a sandbox to a number of cores."""
    first_uid: int | None = Field(default=None, ge=1, le=1 << 31)
    """One less than the user of a container's first slot; its own for each container if not given. For engines that map
    users (userns-remap, rootless), whose containers see only 65,536; slots then have a number of processes together."""
    privileged: bool = False
    """Run containers privileged, which is weaker and recorded as such."""
    docker_config: dict[str, Any] = Field(default_factory=dict)
    """Further keys of the docker driver's config: auth, volumes, ulimit, force_pull, runtime, …"""
    workspace: InsidePath = "/workspace"
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the commands."""

    max_connections: int = Field(default=100, gt=2 * REQUESTS)
    """Connections to Nomad's agent at a time: one for each container, 12 for requests and short programs. What the
    agent takes of one client is its `limits.http_max_conns_per_client`, 100 by default; more are broken off."""
    request_timeout: Seconds = 10.0
    """Seconds in which Nomad must have answered a request."""
    start_timeout: Seconds = 120.0
    """Seconds until a new container must run, its image pulled."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Where volumes are, inside, whose files outlive the container."""
        named = (str(volume).split(":") for volume in self.docker_config.get("volumes") or ())
        mounts = [*(self.docker_config.get("mount") or ()), *(self.docker_config.get("mounts") or ())]
        lasting = (mount for mount in mounts if isinstance(mount, dict) and mount.get("type") != "tmpfs")
        return (*(parts[1] for parts in named if len(parts) > 1), *(str(mount.get("target")) for mount in lasting))

    @field_validator("nomad_address")
    @classmethod
    def _with_scheme(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError(f"nomad_address is http://HOST:PORT or https://HOST:PORT, found {redact_address(value)!r}")
        return value

    @field_validator("docker_config")
    @classmethod
    def _check_driver_keys(cls, value: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(set(value) - DOCKER_KEYS):
            raise ValueError(
                f"Nomad's docker driver has no {', '.join(unknown)}: the container would be registered and never start"
            )
        if ours := sorted(set(value) & _OURS):
            raise ValueError(f"docker_config cannot set {', '.join(ours)}: the backend does; see its other options")
        # A registry's password is never shown and never in a lease.
        return {**value, "auth": _with_secrets(value["auth"])} if "auth" in value else value

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        if self.min_containers > self.max_containers:
            raise ValueError(f"min_containers {self.min_containers} is above max_containers {self.max_containers}")
        if self.max_containers > (room := self.max_connections - REQUESTS - SPARE):
            raise ValueError(
                f"max_containers {self.max_containers} is above {room}, for which max_connections "
                f"{self.max_connections} has room: use more slots_per_container, or raise max_connections with "
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
