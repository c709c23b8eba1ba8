"""Connect and log in to a host; every error has a hint. All functions block."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from paramiko import Channel, Transport
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    ChannelException,
    SSHException,
)

from hermes_backend_ssh.keys import candidate_keys
from hermes_backend_ssh.known_hosts import check_host_key, known_kinds
from hermes_backend_ssh.options import Login, SshOptions
from hermes_core.contracts.errors import BackendError, SandboxRefusedError

_LOG: Final = "hermes_backend_ssh.paramiko"
# The errors contain what paramiko logs; without a handler, Python would print it too.
logging.getLogger(_LOG).addHandler(logging.NullHandler())
_RSA: Final = ("rsa-sha2-512", "rsa-sha2-256")


def reason(error: Exception) -> str:
    """Return an error's text; an end of the stream has none."""
    return str(error) or "it closed the connection"


def connect(options: SshOptions) -> list[Transport]:
    """Log in through each jump host; return the transports, the target's last."""
    transports: list[Transport] = []
    try:
        for login in (*options.jump, options):
            sock = _through(transports[-1], login, options) if transports else _reach(login, options)
            transport = _negotiate(sock, login, options)
            transports.append(transport)
            _authenticate(transport, login, options)
    except BaseException:
        disconnect(transports)
        raise
    return transports


def disconnect(transports: list[Transport]) -> None:
    """End the connections, the innermost first."""
    for transport in reversed(transports):
        with contextlib.suppress(OSError, EOFError, SSHException):
            transport.close()


def _reach(login: Login, options: SshOptions) -> socket.socket:
    where = f"{login.host} port {login.port}"
    try:
        sock = socket.create_connection((login.host, login.port), options.connect_timeout)
    except socket.gaierror as error:
        hint = "check the spelling; names of ~/.ssh/config are not read, set host, port, user and key"
        raise BackendError(f"the host name {login.host!r} cannot be resolved: {error.strerror}", hint=hint) from error
    except ConnectionRefusedError as error:
        hint = "start sshd there (`systemctl start ssh`), or set the option port to sshd's port"
        raise BackendError(f"nothing listens on {where}: connection refused", hint=hint) from error
    except TimeoutError as error:
        hint = "check for a firewall or a stopped machine; raise connect_timeout if it is only slow"
        raise BackendError(f"{where} did not answer within {options.connect_timeout:g} s", hint=hint) from error
    except OSError as error:
        raise BackendError(
            f"{where} cannot be reached: {error.strerror or error}", hint=f"`ping {login.host}`"
        ) from error
    _tune(sock, options)
    return sock


def _tune(sock: socket.socket, options: SshOptions) -> None:
    # Otherwise each small packet waits for the acknowledgement of the last one, with ten times the latency.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.keepalive and hasattr(socket, "TCP_USER_TIMEOUT"):
        # Unacknowledged data ends the connection; keep-alive packets make sure that there is some.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, options.keepalive * 3000)


def _through(jump: Transport, login: Login, options: SshOptions) -> Channel:
    try:
        return jump.open_channel(
            "direct-tcpip", (login.host, login.port), ("127.0.0.1", 0), timeout=options.connect_timeout
        )
    except ChannelException as error:
        hint = (
            "set `AllowTcpForwarding yes` in its sshd_config"
            if error.code == 1
            else f"from there, `ssh -p {login.port} {login.host}` must connect"
        )
        raise BackendError(f"the jump host before {login.name} does not reach it: {error.text}", hint=hint) from error
    except (SSHException, OSError, EOFError) as error:
        raise BackendError(f"the jump host before {login.name} was lost: {reason(error)}") from error


def _negotiate(sock: socket.socket | Channel, login: Login, options: SshOptions) -> Transport:
    transport = Transport(sock)
    transport.set_log_channel(_LOG)
    transport.daemon = True
    transport.banner_timeout = transport.handshake_timeout = options.connect_timeout
    transport.auth_timeout = transport.channel_timeout = options.connect_timeout
    try:
        _prefer_fast(transport)
        _prefer_known(transport, login, options)
        transport.start_client(timeout=options.connect_timeout)
        # A negotiation that times out ends without an exception and without a key.
        key = transport.get_remote_server_key()
        check_host_key(options.known_hosts, login.host, login.port, key, options.host_key_policy)
    except (SSHException, OSError, EOFError) as error:
        transport.close()
        raise BackendError(
            f"SSH negotiation with {login.host} port {login.port} failed: {reason(error)}",
            hint="check that sshd listens there and read its log; MaxStartups limits concurrent logins",
        ) from error
    except BaseException:
        transport.close()
        raise
    return transport


def _prefer_fast(transport: Transport) -> None:
    # GCM needs no separate hash, which halves the CPU time for large files.
    security = transport.get_security_options()
    security.ciphers = sorted(security.ciphers, key=lambda name: "gcm" not in name)


def _prefer_known(transport: Transport, login: Login, options: SshOptions) -> None:
    """Request the known key types: a machine has several, and an unknown type would look like a changed key."""
    kinds = known_kinds(options.known_hosts, login.host, login.port)
    wanted = [name for kind in kinds for name in (_RSA if kind == "ssh-rsa" else (kind,))]
    security = transport.get_security_options()
    offered = tuple(security.key_types)
    security.key_types = tuple(dict.fromkeys([*(name for name in wanted if name in offered), *offered]))


def _authenticate(transport: Transport, login: Login, options: SshOptions) -> None:
    tried: list[str] = []
    offered: list[str] = []
    try:
        with contextlib.closing(candidate_keys(login)) as candidates:
            for words, key in candidates:
                tried.append(words)
                if key is not None and not _attempt(offered, partial(transport.auth_publickey, login.user, key)):
                    break
        if not transport.is_authenticated() and login.password is not None:
            tried.append("the password")
            _attempt(offered, partial(transport.auth_password, login.user, login.password.get_secret_value()))
        if not transport.is_authenticated() and not offered:
            # A server without authentication accepts this; others answer with the methods that they accept.
            _attempt(offered, partial(transport.auth_none, login.user))
    except (SSHException, OSError, EOFError) as error:
        raise _login_refusal(login, tried, offered, f" ({reason(error)})") from error
    if not transport.is_authenticated():
        raise _login_refusal(login, tried, offered, "")
    if options.keepalive:
        transport.set_keepalive(options.keepalive)


def _attempt(offered: list[str], login: Callable[[], list[str]]) -> bool:
    """Try one authentication method; return False if further tries of this method are useless."""
    try:
        offered[:] = login()
    except BadAuthenticationType as error:
        offered[:] = error.allowed_types
        return False
    except AuthenticationException:
        return True
    return False


def _login_refusal(login: Login, tried: list[str], offered: list[str], why: str) -> SandboxRefusedError:
    said = f"; it accepts {', '.join(offered)}" if offered else ""
    attempts = ", ".join(tried) or "nothing: no key, no ssh-agent, no password"
    public = login.key.with_name(login.key.name + ".pub") if login.key is not None else "KEY.pub"
    return SandboxRefusedError(
        f"{login.name} refuses the login{why}; tried {attempts}{said}",
        hint=f"`ssh-copy-id -i {public} -p {login.port} {login.user}@{login.host}`, or set user, key or password",
    )
