"""The proxy's rules against programs that try to get more than is allowed."""

from __future__ import annotations

import asyncio

import pytest
from egress_support import PIECE, Program, ask, origin, proxy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_sandbox.agent.tunnels import TUNNEL_WINDOW
from hermes_sandbox.egress.log import EgressDecision, EgressLog
from hermes_testing.watching import TooSoon, with_more_time

NAMES = {"a.example": ["127.0.0.1"], "other.example": ["127.0.0.1"], "two.example": ["10.255.255.1", "127.0.0.1"]}


async def _echo(made, reader, writer):
    while data := await reader.read(PIECE):
        made.data += data
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def test_a_connection_to_a_listed_host_is_relayed_both_ways_and_logged():
    async with origin(_echo) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        program = Program(made)
        request = b"CONNECT A.Example.:%d HTTP/1.1\r\nHost: ignored\r\n" % server.port
        await program.send(request + program.authorization() + b"\r\nhello")
        program.finish()
        assert await program.answer() == b"HTTP/1.1 200 Connection established\r\n\r\nhello"
        assert not program.broken
        (decision,) = made.log.decisions
        assert (decision.host, decision.port, decision.allowed) == ("a.example", server.port, True)
        assert (decision.sent, decision.received, made.log.allowed, made.log.sent) == (5, 5, 1, 5)
        assert decision.time > 1e9


async def test_a_request_reaches_its_origin_without_what_belongs_to_the_proxy():
    async with origin() as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        request = (
            b"GET http://a.example:%d/path?q=1 HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: keep-alive\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Kept:  two words \r\n\r\n"
        )
        assert (await ask(made, request % server.port)).endswith(b"reached")
        assert bytes(server.data) == (
            b"GET /path?q=1 HTTP/1.1\r\nHost: a.example:%d\r\nConnection: close\r\nx-kept: two words\r\n\r\n"
            % server.port
        )


@pytest.mark.parametrize(
    ("allow", "target"),
    [
        ([], "a.example:443"),
        (["b.example"], "a.example:443"),
        (["a.example"], "a.example:22"),
        (["*.a.example"], "a.example:443"),
    ],
)
async def test_what_is_not_listed_is_refused_with_its_name_and_the_setting(allow, target):
    """hermes-agent's defect: there was no egress policy."""
    async with proxy(*allow, names=NAMES) as made:
        answer = await ask(made, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert target.encode() in answer
        assert b"sandbox.allow_hosts" in answer
        assert (made.log.allowed, made.log.refused) == (0, 1)
        assert not made.log.decisions[0].allowed
        assert made.log.decisions[0].reason in answer.decode()


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["169.254.169.254"], ["::1"], ["10.0.0.1", "fd00::1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"]],
)
async def test_a_listed_name_that_leads_inside_is_refused(addresses):
    async with origin() as server, proxy(f"a.example:{server.port}", names={"a.example": addresses}) as made:
        answer = await ask(made, b"CONNECT a.example:%d HTTP/1.1\r\n\r\n" % server.port)
        assert b" 403 " in answer
        assert b"@private" in answer
        assert server.connections == 0


async def test_a_name_is_resolved_once_and_that_address_is_connected_to():
    """A name server that answers differently the second time gets nothing by it."""
    asked = []

    async with origin() as server, proxy(f"a.example:{server.port}@private") as made:

        async def rebinding(host):
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.9"]

        made._resolve = rebinding
        request = b"GET http://a.example:%d/ HTTP/1.1\r\n\r\n" % server.port
        assert (await ask(made, request)).endswith(b"reached")
        assert asked == ["a.example"]


@pytest.mark.parametrize(
    "request_line",
    [
        "GET / HTTP/1.1",
        "GET https://a.example/ HTTP/1.1",
        "GET ftp://a.example/ HTTP/1.1",
        "GET http://a.example@other.example/ HTTP/1.1",
        "GET http://user:word@a.example/ HTTP/1.1",
        "GET http://a.example\\@other.example/ HTTP/1.1",
        "GET http://a.example/#x HTTP/1.1",
        "GET http:///path HTTP/1.1",
        "GET http://a.example:99999/ HTTP/1.1",
        "GET  http://a.example/ HTTP/1.1",
        "GET http://a.example/ HTTP/2.0",
        "GET http://a.example/",
        "CONNECT a.example HTTP/1.1",
        "CONNECT a.example: HTTP/1.1",
        "CONNECT http://a.example:80 HTTP/1.1",
        "CONNECT 0x7f000001:80 HTTP/1.1",
        "CONNECT 2130706433:80 HTTP/1.1",
        "CONNECT 127.1:80 HTTP/1.1",
        "CONNECT [::1%lo]:80 HTTP/1.1",
        "CONNECT a.example:80 HTTP/1.1 x",
        "",
        "\x16\x03\x01",
    ],
)
async def test_odd_requests_are_refused_and_never_forwarded(request_line):
    async with proxy("a.example@private", "other.example@private", names=NAMES) as made:
        answer = await ask(made, request_line.encode() + b"\r\nHost: a.example\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert made.log.allowed == 0


@pytest.mark.parametrize("target", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "8.8.8.8", "localhost"])
async def test_an_address_is_reached_only_when_it_is_listed_itself(target):
    async with origin() as server, proxy("*.example@private", "a.example:1", names=NAMES) as made:
        assert b" 403 " in await ask(made, f"CONNECT {target}:{server.port} HTTP/1.1\r\n\r\n".encode())
        assert server.connections == 0
    async with origin() as server, proxy(f"127.0.0.1:{server.port}@private") as made:
        assert (await ask(made, f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\n\r\n".encode())).endswith(b"reached")


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3, 3",
        "Content-Length: +3",
        "Content-Length: -1",
        "Content-Length: 0x3",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Content-Length: 3\r\n folded",
        "X: a\rContent-Length: 3",
        "X: a\nContent-Length: 3",
        "X: a\0b",
        ": empty",
        "no colon",
    ],
)
async def test_a_request_that_two_parsers_could_read_differently_is_refused(fields):
    async with origin() as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        head = f"POST http://a.example:{server.port}/ HTTP/1.1\r\n{fields}\r\n\r\n"
        assert (await ask(made, head.encode() + b"abc")).startswith(b"HTTP/1.1 400 ")
        assert server.connections == 0


@pytest.mark.parametrize(
    ("fields", "body", "arrives"),
    [
        (b"Content-Length: 3", b"abc", b"abc"),
        (b"Content-Length: 0", b"", b""),
        (b"X: y", b"", b""),
        (
            b"Transfer-Encoding: chunked",
            b"3;x=1\r\nabc\r\n02\r\nde\r\n0\r\nTrailer: 1\r\n\r\n",
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ),
    ],
)
async def test_nothing_after_a_request_reaches_its_origin(fields, body, arrives):
    """A second request on the connection could name another host of the same server."""

    async def serve(made, reader, writer):
        while not (b"\r\n\r\n" in made.data and made.data.endswith(arrives)):
            made.data += await reader.read(PIECE)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        writer.write_eof()
        while data := await reader.read(PIECE):
            made.data += data

    async with origin(serve) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        smuggled = b"GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n"
        head = b"POST http://a.example:%d/ HTTP/1.1\r\n%b\r\n\r\n" % (server.port, fields)
        assert (await ask(made, head + body + smuggled)).startswith(b"HTTP/1.1 200 ")
        await server.seen.wait()
        assert server.data.partition(b"\r\n\r\n")[2] == arrives
        assert b"other" not in server.data
        assert [decision.host for decision in made.log.decisions] == ["a.example"]


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"3\r\nabcd\r\n", b"-1\r\n", b"3\nabc\r\n", b"0\r\n" + b"a: b\r\n" * 100, b"1" * 40000]
)
async def test_malformed_chunks_break_the_connection(body):
    async def serve(made, reader, writer):
        while await reader.read(PIECE):
            pass

    async with origin(serve) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        head = b"POST http://a.example:%d/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" % server.port
        program = Program(made)
        await program.send(head + program.authorization() + b"\r\n" + body)
        await program.answer()
        assert program.broken


@pytest.mark.parametrize("given_password", [None, "hermes:wrong", "hermes", ":"])
async def test_without_the_sandbox_s_own_password_nothing_is_forwarded(given_password):
    """hermes-agent's defect: whoever reached the server could use it as anybody."""
    import base64

    async with origin() as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        line = (
            ""
            if given_password is None
            else f"Proxy-Authorization: Basic {base64.b64encode(given_password.encode()).decode()}\r\n"
        )
        request = f"GET http://a.example:{server.port}/ HTTP/1.1\r\n{line}\r\n".encode()
        answer = await ask(made, request, authorized=False)
        assert answer.startswith(b"HTTP/1.1 407 ")
        assert b"Proxy-Authenticate: Basic" in answer
        assert (made.log.unauthorized, made.log.decisions) == (1, ())
        assert server.connections == 0


async def test_a_host_that_cannot_be_reached_is_an_answer_with_the_reason():
    async with proxy("a.example:1@private", "unknown.example", names=NAMES) as made:
        assert (await ask(made, b"CONNECT a.example:1 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
        answer = await ask(made, b"CONNECT unknown.example:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"unknown.example" in answer


async def test_a_head_without_an_end_is_refused():
    async with proxy("a.example") as made:
        program = Program(made)
        await program.send(b"GET http://a.example/ HTTP/1.1\r\n" + b"X: y\r\n" * 20000)
        assert (await program.answer()).startswith(b"HTTP/1.1 431 ")


async def test_a_program_that_says_nothing_is_answered_after_a_while():
    async with proxy("a.example", patience=0.05) as made:
        assert (await Program(made).answer()).startswith(b"HTTP/1.1 408 ")


async def test_a_connection_that_one_side_has_left_ends_though_the_other_says_nothing():
    async def serve(made, reader, writer):
        await asyncio.Event().wait()

    async def attempt(seconds):
        before = server.connections
        allow = f"a.example:{server.port}@private"
        async with proxy(allow, names=NAMES, patience=seconds) as made:
            program = Program(made)
            request = b"CONNECT a.example:%d HTTP/1.1\r\n" % server.port
            await program.send(request + program.authorization() + b"\r\n")
            program.finish()
            answer = await program.answer()
            TooSoon.unless(server.connections > before, "the request was not whole")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert program.broken

    async with origin(serve) as server:
        await with_more_time(attempt)


async def test_an_origin_that_sends_without_end_fills_one_window_of_a_program_that_does_not_read():
    stopped = asyncio.Event()

    async def serve(made, reader, writer):
        try:
            while True:
                writer.write(bytes(PIECE))
                await writer.drain()
        finally:
            stopped.set()

    async with origin(serve) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        program = Program(made, takes=False)
        await program.send(b"CONNECT a.example:%d HTTP/1.1\r\n" % server.port + program.authorization() + b"\r\n")
        while program.unread < TUNNEL_WINDOW:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert program.most_unread == TUNNEL_WINDOW
        program.cut()
        await stopped.wait()


async def test_an_origin_that_reads_late_holds_the_program_up_and_gets_everything():
    ready = asyncio.Event()
    data = bytes(range(256)) * (1 << 17)

    async def serve(made, reader, writer):
        await ready.wait()
        while piece := await reader.read(PIECE):
            made.data += piece
        writer.write_eof()

    async with origin(serve) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        program = Program(made)
        await program.send(b"CONNECT a.example:%d HTTP/1.1\r\n" % server.port + program.authorization() + b"\r\n")
        sending = asyncio.create_task(program.send(data))
        for _ in range(2000):
            await asyncio.sleep(0)
        assert not sending.done()
        assert made.log.sent < len(data)
        ready.set()
        await sending
        program.finish()
        await program.answer()
        assert bytes(server.data) == data
        assert made.log.sent == len(data)


async def test_an_agent_that_sends_more_than_it_may_is_cut_off():
    async with origin(_echo) as server, proxy(f"a.example:{server.port}@private", names=NAMES) as made:
        program = Program(made)
        program._event("tunnel_data", bytes(TUNNEL_WINDOW + 1))
        assert made._tunnels[program.number][0].broken


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tunnel_open", "tunnel_data", "tunnel_credit", "tunnel_close", "tunnel_x"]),
            st.integers(-1, 3) | st.text(max_size=2) | st.none(),
            st.integers() | st.none() | st.text(max_size=2),
            st.binary(max_size=64),
        ),
        max_size=20,
    )
)
async def test_no_frame_of_an_agent_raises_or_leaves_a_task(frames):
    sent = []

    async def send(header, body):
        sent.append((header, body))

    async with proxy() as made:
        for event, number, size, body in frames:
            made.receive({"event": event, "tunnel": number, "size": size}, body, send)
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not made._tunnels


FRAGMENTS = st.sampled_from(
    [
        "GET ",
        "CONNECT ",
        "POST ",
        "http://",
        "a.example",
        "other.example",
        ":80",
        "@",
        "/",
        " HTTP/1.1",
        "\r\n",
        "\n",
        "\r",
        "Host: other.example",
        "Content-Length: ",
        "5",
        "Transfer-Encoding: chunked",
        "\t",
        " ",
        "\x00",
        "\\",
        "%40",
        "[::1]",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAGMENTS, max_size=12).map("".join) | st.binary(max_size=100).map(lambda data: data.decode("latin-1")))
async def test_no_request_makes_the_proxy_resolve_what_is_not_listed(text):
    asked = []

    async with proxy("a.example") as made:

        async def resolve(host):
            asked.append(host)
            return ["127.0.0.1"]

        made._resolve = resolve
        answer = await ask(made, text.encode("latin-1") + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 4")
        assert set(asked) <= {"a.example"}
        assert made.log.allowed == 0
        assert made.log.refused == 1


def test_the_log_keeps_the_last_decisions_and_counts_all():
    log = EgressLog(kept=3)
    for number in range(10):
        decision = EgressDecision(float(number), f"h{number}", 443, allowed=number % 2 == 0, reason="r")
        log.add(decision)
        log.count(decision, sent=1, received=2)
    record = log.to_json()
    assert {key: value for key, value in record.items() if key != "decisions"} == {
        "allowed": 5,
        "refused": 5,
        "unauthorized": 0,
        "sent": 10,
        "received": 20,
        "omitted": 7,
    }
    assert [decision["host"] for decision in record["decisions"]] == ["h7", "h8", "h9"]
