"""The shared connection of this process to a cluster, because Ray allows only one. All functions block."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hermes_backend_ray.cluster.announcements import log_announcements
from hermes_backend_ray.options import CLIENT, NO_CLIENT, WITHOUT_CLIENT, RayOptions, split_address
from hermes_core.contracts.errors import BackendError, SandboxRefusedError

_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first bytes of an HTTP/2 (and gRPC) client: the preface with empty settings."""
_FRAME: Final = 9
"""Bytes of the head of each HTTP/2 frame."""
_SETTINGS: Final = 4
"""Type of an HTTP/2 server's first frame."""
_START: Final = "`ray start --head` on its head node, or address: local for a cluster of this process's own"


@dataclass
class _Users:
    """The users of the connection, and whether one of them opened it; stored on the module `ray`, beside it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    present: set[object] = field(default_factory=set)
    ours: bool = False
    restore: Callable[[], None] | None = None


def _users() -> _Users:
    import ray

    # There is one connection per process, so there must be one record of its users.
    users: _Users = vars(ray).setdefault("_hermes_users", _Users())
    return users


def attach(options: RayOptions, user: object) -> str:
    """Connect, or share the existing connection; return the cluster's address. Pair with `detach`.

    Raises:
        BackendError: The cluster cannot be reached.
        SandboxRefusedError: This process is connected to another cluster or by Ray Client, or the versions differ.
    """
    import ray

    users = _users()
    with users.lock:
        if not ray.is_initialized():
            users.restore = log_announcements()
            try:
                _connect(options)
            except BaseException:
                users.restore()
                raise
            users.ours = True
        elif user not in users.present:
            if _is_client():
                raise _client_error("the connection of this process")
            _same(options)
        users.present.add(user)
        return known_address() or ""


def detach(user: object) -> None:
    """Release the connection; the last user closes it if one of the users has opened it."""
    import ray

    users = _users()
    with users.lock:
        users.present.discard(user)
        if users.ours and not users.present:
            users.ours = False
            ray.shutdown()
            if users.restore is not None:
                users.restore()


def uses_tls() -> bool:
    """Return whether Ray is set to encrypt the traffic between its processes."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}


def known_address() -> str | None:
    """Return the address of the cluster that this process is connected to, None if it is not."""
    import ray

    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else None


def _connect(options: RayOptions) -> None:
    import ray

    address = options.address
    if address is None:
        raise SandboxRefusedError(
            "backend 'ray' has no address, and this process has not initialised Ray",
            hint="set the option address (host:6379, auto, or local), or call ray.init first",
        )
    if address == "auto":
        address = _find_address()
    if address.startswith(CLIENT):
        raise _client_error(address)
    if address != "local":
        _knock(address, options.connect_timeout)
    try:
        with _quiet():
            ray.init(
                address=address,
                namespace=options.namespace,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if address == "local" else None,
            )
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        raise _connection_error(address, error) from error


def _is_client() -> bool:
    """Return whether this process is connected by Ray Client."""
    from ray.util.client import ray as client

    return bool(client.is_connected())  # type: ignore[no-untyped-call]  # Ray does not type it


def _client_error(what: str) -> SandboxRefusedError:
    hint = f"{WITHOUT_CLIENT}; RAY_ADDRESS decides what auto means"
    return SandboxRefusedError(f"{what}: {NO_CLIENT}", hint=hint)


def _find_address() -> str:
    """Return the address of `auto`; Ray itself would try it for minutes even if no server listens there."""
    from ray._private.services import get_ray_address_from_environment

    try:
        address = str(get_ray_address_from_environment("auto", None))
        if address != "local" and not address.startswith(CLIENT):
            split_address(address)
    except (ConnectionError, ValueError) as error:
        raise _connection_error("auto", error) from error
    return address


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Ray's warning that it cannot handle signals in a thread; the caller handles them."""
    logger = logging.getLogger("ray._private.worker")

    def is_wanted(record: logging.LogRecord) -> bool:
        return "SIGTERM handler" not in record.getMessage()

    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)


def _knock(address: str, timeout: float) -> None:
    """Check that a Ray cluster listens, because Ray itself tries for minutes, and may then end the process."""
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout) as sock:
            if not uses_tls() and not _speaks_grpc(sock):
                raise BackendError(f"expected a Ray cluster at {address}, got another server", hint=_START)
    except socket.gaierror as error:
        raise BackendError(
            f"the host name of the Ray cluster {address} cannot be resolved: {error.strerror}",
            hint="check the spelling",
        ) from error
    except ConnectionRefusedError as error:
        raise BackendError(f"no Ray cluster listens on {address}: connection refused", hint=_START) from error
    except TimeoutError as error:
        raise BackendError(
            f"the Ray cluster {address} did not answer within {timeout:g} s",
            hint="check for a firewall and whether the head node is on; raise connect_timeout if it is only slow",
        ) from error
    except OSError as error:
        raise BackendError(
            f"the Ray cluster {address} cannot be reached: {error.strerror or error}", hint=f"`ping {host}`"
        ) from error


def _speaks_grpc(sock: socket.socket) -> bool:
    sock.sendall(_GREETING)
    answer = b""
    while len(answer) < _FRAME:
        more = sock.recv(_FRAME - len(answer))
        if not more:
            return False
        answer += more
    return answer[3] == _SETTINGS


def _connection_error(address: str, error: Exception) -> BackendError:
    text = " ".join(str(error).split())[:600]
    if "ersion mismatch" in text:
        return SandboxRefusedError(
            f"the Ray cluster {address} runs other versions than this process: {text}",
            hint="install the cluster's Ray (`pip install ray==…`) and the cluster's Python version here",
        )
    return BackendError(f"the Ray cluster {address} cannot be used: {text}", hint=_START)


def _same(options: RayOptions) -> None:
    """Refuse the address of another cluster than the one that this process is connected to."""
    wanted, found = options.address, known_address()
    if wanted in {None, "auto", "local"} or wanted == found or found is None:
        return
    (host, port), (there, its) = split_address(str(wanted)), split_address(found)
    if port == its and _addresses_of(host) & (_addresses_of(there) | {"127.0.0.1", "::1"}):
        return
    raise SandboxRefusedError(
        f"expected the Ray cluster {wanted}, got a connection to {found}, and Ray allows one connection",
        hint="use a separate process for each cluster, or the option address of the present one",
    )


def _addresses_of(host: str) -> set[str]:
    with contextlib.suppress(OSError):
        return {str(ipaddress.ip_address(entry[4][0])) for entry in socket.getaddrinfo(host, None)}
    return {host}
