"""The base of backends for other machines that can run commands.

Such a backend subclasses `MachineBackend`, implements `Link` to its machines, and extends `MachineOptions`. One that
transports frames itself reads them with `decode_header`.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_sandbox.agent.wire import PREFIX, FrameError, decode_header, lengths
    from hermes_sandbox.remote.backend import MachineBackend
    from hermes_sandbox.remote.link import CompletedCommand, Link, RemoteProgram
    from hermes_sandbox.remote.options import MachineOptions

__all__ = [
    "PREFIX", "CompletedCommand", "FrameError", "Link", "MachineBackend", "MachineOptions", "RemoteProgram",
    "decode_header", "lengths",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".backend": "MachineBackend",
            ".link": "CompletedCommand Link RemoteProgram",
            ".options": "MachineOptions",
            "hermes_sandbox.agent.wire": "FrameError PREFIX decode_header lengths",
        },
    )
