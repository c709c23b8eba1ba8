"""Convert the program's errors to typed errors with hints."""

from __future__ import annotations

import re
from typing import Final

from hermes_core.contracts.errors import BackendError, SandboxRefusedError

_SHOWN: Final = 1200
"""How many characters at the end of the program's output go into a message."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRAILERS: Final = re.compile(r"while executing starter|container cleanup failed|exit status \d+$")


class ProgramMissingError(SandboxRefusedError):
    """Neither apptainer nor singularity is installed."""


class InstanceError(BackendError):
    """An instance cannot be started or ended."""


class ImageError(BackendError):
    """An image is missing, invalid, or cannot be built; a retry would not help."""

    retryable = False


class ImageTimeoutError(ImageError):
    """An image was not built in time."""

    retryable = True


class NoSpaceError(BackendError):
    """The disk of the sandboxes or of the image cache is full."""


_NO_SPACE: Final = re.compile(r"no space left|disk quota exceeded", re.IGNORECASE)
_NOT_FOR_THIS_MACHINE: Final = (
    (
        r"not writable by this user",
        "set the backend's option workspace to a directory that the image does not have, such as /work",
    ),
    (
        r"user namespace|CLONE_NEWUSER|newuidmap|unprivileged",
        (
            "this user cannot create user namespaces: `sysctl user.max_user_namespaces=15000` (and on Ubuntu "
            "`kernel.apparmor_restrict_unprivileged_userns=0`) as root, or install the set-uid starter (apptainer-suid)"
        ),
    ),
    (
        r"squashfuse|/dev/fuse|fusermount|fuse-overlayfs|fuse2fs",
        (
            "a SIF needs FUSE if the caller is not root: `apt-get install squashfuse fuse3`, or use a directory: "
            "`apptainer build --sandbox DIR IMAGE`"
        ),
    ),
    (
        r"overlay",
        (
            "set the backend's option scratch_dir to a directory on a file system that supports overlays, such as "
            "ext4, xfs or tmpfs"
        ),
    ),
    (r"mksquashfs|unsquashfs", "`apt-get install squashfs-tools`"),
    (
        r"\.singularity\.d/actions/start",
        "this is a bare root file system: run `apptainer build --sandbox NEW DIR` first",
    ),
    (r"not allowed|administrator|not permitted by", "apptainer.conf forbids it: see `apptainer config global`"),
)
_OF_THE_IMAGE: Final = re.compile(r"image format not recognized|could not open image|not an? (?:SIF|image)")


def last_words(said: str) -> str:
    """Return the end of a program's error output, without colours and lines that only repeat the failure."""
    lines = [line.strip() for line in _COLOURS.sub("", said).splitlines() if line.strip()]
    telling = [line for line in lines if not _TRAILERS.search(line)] or lines
    return "\n".join(dict.fromkeys(telling))[-_SHOWN:] or "no output"


def explain(what: str, said: str) -> BackendError:
    """Return the error for something that the program failed to do; its message begins with `what`."""
    shown = f"{what}: {last_words(said)}"
    if _NO_SPACE.search(said):
        return NoSpaceError(
            shown, hint="free some space, or set the backend's options scratch_dir and cache_dir to another disk"
        )
    if _OF_THE_IMAGE.search(said):
        return ImageError(shown, hint="give a SIF file, a sandbox directory, a definition file or docker://NAME")
    for pattern, hint in _NOT_FOR_THIS_MACHINE:
        if re.search(pattern, said, re.IGNORECASE):
            return SandboxRefusedError(shown, hint=hint)
    return InstanceError(shown, hint="`apptainer instance start` with the same image shows the same error")
