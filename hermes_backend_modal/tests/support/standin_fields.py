"""The fields of requests that the stand-in looks at or may leave aside; a request with any other one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KNOWN_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "AppFetchLogs": ("app_id limit since task_id until"),
        "AppGetOrCreate": ("app_name environment_name object_creation_type"),
        "EnvironmentGetOrCreate": ("deployment_name environment_name object_creation_type"),
        "ImageBuildChainGet": ("image_id"),
        "ImageFromId": ("image_id"),
        "ImageGetOrCreate": (
            "app_id builder_version image.base_images.docker_tag image.base_images.image_id "
            "image.dockerfile_commands image.gpu_config image.image_registry_config namespace"
        ),
        "ImageJoinStreaming": ("image_id timeout"),
        "SandboxCreate": (
            "app_id definition.entrypoint_args definition.idle_timeout_secs definition.image_id "
            "definition.network_access.network_access_type definition.open_ports "
            "definition.resources.gpu_config definition.resources.memory_mb "
            "definition.resources.milli_cpu definition.timeout_secs definition.workdir tags.tag_name "
            "tags.tag_value"
        ),
        "SandboxCreateV2": (
            "app_id definition.entrypoint_args definition.idle_timeout_secs definition.image_id "
            "definition.network_access.network_access_type definition.open_ports "
            "definition.resources.gpu_config definition.resources.memory_mb "
            "definition.resources.memory_mb_max definition.resources.milli_cpu "
            "definition.resources.milli_cpu_max definition.scheduler_placement.regions "
            "definition.secret_ids definition.timeout_secs "
            "definition.volume_mounts.allow_background_commits definition.volume_mounts.mount_path "
            "definition.volume_mounts.read_only definition.volume_mounts.volume_id definition.workdir "
            "secret_sources.secret_id tags.tag_name tags.tag_value"
        ),
        "SandboxGetCommandRouterAccess": ("sandbox_id"),
        "SandboxGetTaskId": ("sandbox_id"),
        "SandboxGetTaskIdV2": ("sandbox_id"),
        "SandboxListV2": ("app_id before_timestamp tags.tag_name tags.tag_value"),
        "SandboxTagsGet": ("sandbox_id"),
        "SandboxTagsGetV2": ("sandbox_id"),
        "SandboxTerminate": ("sandbox_id"),
        "SandboxTerminateV2": ("sandbox_id"),
        "SandboxWait": ("sandbox_id timeout"),
        "SandboxWaitV2": ("sandbox_id timeout"),
        "SecretGetOrCreate": ("deployment_name"),
        "TaskExecPoll": ("exec_id task_id"),
        "TaskExecStart": ("command_args exec_id stderr_config stdout_config task_id timeout_secs workdir"),
        "TaskExecStdinWrite": ("data eof exec_id offset task_id"),
        "TaskExecStdioRead": ("exec_id file_descriptor offset task_id"),
        "TaskExecWait": ("exec_id task_id"),
        "TaskGetCommandRouterAccess": ("task_id"),
        "VolumeGetOrCreate": ("create_options deployment_name"),
    }.items()
}
