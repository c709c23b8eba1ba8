"""Where Nomad is looked for, and how a connection to it is secured."""

from __future__ import annotations

import base64
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import ValidationError

from hermes_backend_nomad.address import find_address
from hermes_backend_nomad.backend import NomadBackend
from hermes_backend_nomad.options import NomadOptions
from hermes_core.contracts.errors import BackendError
from hermes_core.contracts.sandbox import SandboxSpec

_ENVIRONMENT = {
    "NOMAD_ADDR": "http://there:4646/",
    "NOMAD_TOKEN": "outer",
    "NOMAD_NAMESPACE": "apps",
    "NOMAD_REGION": "north",
}


def test_without_options_nomads_own_variables_hold() -> None:
    found = find_address(NomadOptions(), _ENVIRONMENT)
    assert (found.url, dict(found.query)) == ("http://there:4646", {"region": "north", "namespace": "apps"})
    assert found.headers == {"X-Nomad-Token": "outer"}
    assert find_address(NomadOptions(), {}).url == "http://localhost:4646"


def test_options_hold_over_the_variables() -> None:
    options = NomadOptions(nomad_address="http://here:1", token="inner", namespace="mine", region="south")
    found = find_address(options, _ENVIRONMENT)
    assert (found.url, dict(found.query)) == ("http://here:1", {"region": "south", "namespace": "mine"})
    assert found.headers == {"X-Nomad-Token": "inner"}
    assert "inner" not in repr((found, options))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for server.global.nomad, which is its own authority, and its key."""
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=server.global.nomad", "-addext", "subjectAltName=DNS:server.global.nomad",
         "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


@pytest_asyncio.fixture
async def secure(certificate: tuple[Path, Path]) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """The address of a server that requires a client certificate, and the requests that it got."""
    seen: list[dict[str, str]] = []

    async def jobs(request: web.Request) -> web.Response:
        seen.append({**request.query, "token": request.headers.get("X-Nomad-Token", "")})
        return web.json_response([])

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate[0]))
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.add_routes([web.get("/v1/jobs", jobs)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", seen
    await runner.cleanup()


def _options(address: str, certificate: tuple[Path, Path], **others: Any) -> NomadOptions:
    cert, key = certificate
    given = {"ca_cert": cert, "client_cert": cert, "client_key": key, "tls_server_name": "server.global.nomad"}
    return NomadOptions(**{"nomad_address": address, **given, **others})


async def test_requests_to_a_secured_nomad_use_both_certificates_and_the_name_in_its_own(
    secure: tuple[str, list[dict[str, str]]], certificate: tuple[Path, Path]
) -> None:
    address, seen = secure
    backend = NomadBackend(_options(address, certificate, token="t", namespace="mine"))
    assert await backend.sweep() == []
    await backend.aclose()
    assert seen == [{"prefix": "", "namespace": "mine", "token": "t"}]


@pytest.mark.parametrize("lacks", [{"ca_cert": None}, {"tls_server_name": None}])
async def test_what_is_missing_for_a_secured_connection_is_said(
    secure: tuple[str, list[dict[str, str]]],
    certificate: tuple[Path, Path],
    lacks: dict[str, Any],
) -> None:
    address, seen = secure
    backend = NomadBackend(_options(address, certificate, **lacks))
    with pytest.raises(BackendError, match=rf"the TLS handshake with Nomad at {address} failed: .*verify") as caught:
        await backend.sweep()
    await backend.aclose()
    assert "NOMAD_CACERT" in (caught.value.hint or "")
    assert seen == []


async def test_a_user_and_password_go_to_the_proxy_and_into_nothing_that_is_written_or_said() -> None:
    seen: list[str] = []

    async def jobs(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response([], status=403)

    app = web.Application()
    app.add_routes([web.get("/v1/jobs", jobs)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"127.0.0.1:{runner.addresses[0][1]}"
    backend = NomadBackend(NomadOptions(nomad_address=f"http://me:s3%40cret@{host}", sandbox_image="i"))
    with pytest.raises(BackendError) as caught:
        await backend.sweep()
    await runner.cleanup()
    with pytest.raises(BackendError) as unreached:
        await backend.sweep()
    lease = backend.lease_for(SandboxSpec(isolation="container"), "s1")
    said = f"{caught.value} {unreached.value} {lease.to_json()} {backend.options!r}"
    await backend.aclose()
    assert seen == ["Basic " + base64.b64encode(b"me:s3@cret").decode()]
    assert host in said
    assert "s3" not in said
    assert (lease.options["nomad_address"], lease.withheld) == (f"http://{host}", ("nomad_address",))


def test_an_address_without_a_scheme_is_refused_without_its_password() -> None:
    with pytest.raises(ValidationError, match="got '\\(withheld\\)@host'") as caught:
        NomadOptions(nomad_address="me:s3cret@host")
    assert "s3cret" not in caught.value.errors()[0]["msg"]
