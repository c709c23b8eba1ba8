#!/usr/bin/python3
"""Takes the arguments that the backend gives Apptainer, and no others, and runs the command in a like place."""

import os
import sys

EXPECTED = ["-s", "exec", "--containall", "--no-privs", "--writable-tmpfs", "--cleanenv", "--pwd", "/"]
NETWORK = ["--net", "--network", "none"]
SYSTEM = """--tmpfs / --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64
--symlink usr/sbin /sbin --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp --chdir / --unshare-pid --unshare-ipc
--die-with-parent --clearenv --setenv PATH /usr/bin:/bin --cap-drop ALL"""

given = sys.argv[1:]
if given[: len(EXPECTED)] != EXPECTED:
    sys.exit(f"unknown arguments: {given}")
rest = given[len(EXPECTED) :]
shut = rest[: len(NETWORK)] == NETWORK
image, *command = rest[len(NETWORK) :] if shut else rest
if image != "/images/small.sif":
    sys.exit(f"FATAL:   could not open image {image}: no such file or directory")
os.execvp("bwrap", ["bwrap", *SYSTEM.split(), *(["--unshare-net"] if shut else []), "--", *command])
