"""What is recorded with a rollout."""

from __future__ import annotations

import os
from typing import Any

from hermes_backend_singularity.images import Image
from hermes_backend_singularity.launching import as_root, capabilities
from hermes_backend_singularity.options import SingularityOptions
from hermes_sandbox.local import Limits


def describe(options: SingularityOptions, image: Image, version: str, limits: Limits) -> dict[str, Any]:
    """Return the image, the engine, whose the commands are, and which limits hold how."""
    uid, gid = options.identity if as_root() else (os.geteuid(), os.getegid())
    return {
        "image": image.name,
        "image_id": image.digest,
        "engine": version,
        "uid": uid,
        "gid": gid,
        "weaker": ["commands are root inside"] if uid == 0 else [],
        "limits": dict(limits.enforced),
        "capabilities": sorted(capabilities(options)),
        "user_namespace": not as_root(),
    }
