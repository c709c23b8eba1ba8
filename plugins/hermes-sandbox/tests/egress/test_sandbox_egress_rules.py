"""Which hosts the entries of `allow_hosts` cover, and which spellings and addresses are none."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_sandbox.egress.rules import AllowList, is_public, normal_host, split_authority


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 8080, False),
        ("example.org", "www.example.org", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("example.org", "example.org.evil.net", 443, False),
        ("EXAMPLE.org.", "example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "notexample.org", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("*.example.org:22", "git.example.org", 22, True),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("8.8.8.8", "8.8.8.8", 443, True),
        ("8.8.8.8", "8.8.4.4", 443, False),
        ("[2001:4860:4860::8888]:53", "2001:4860:4860::8888", 53, True),
        ("*.1", "127.0.0.1", 80, None),
        ("localhost@private", "localhost", 80, True),
    ],
)
def test_an_entry_covers_a_name_and_its_ports_and_nothing_near_it(entry, host, port, allowed):
    if allowed is None:
        with pytest.raises(ValueError, match="allow_hosts"):
            AllowList([entry])
    else:
        assert AllowList([entry]).judge(host, port).allowed is allowed


def test_no_entries_allow_nothing():
    verdict = AllowList([]).judge("example.org", 443)
    assert (verdict.allowed, verdict.reason) == (False, "example.org is not in allow_hosts")


def test_a_port_that_is_not_listed_is_said():
    assert "with port 80 and 443 only" in AllowList(["example.org"]).judge("example.org", 22).reason


def test_only_a_marked_entry_reaches_addresses_that_are_not_public():
    allow = AllowList(["a.example@private", "b.example", "*.c.example:8080@private", "x.c.example:8080"])
    assert [allow.judge(host, 80).private for host in ("a.example", "b.example")] == [True, False]
    assert allow.judge("x.c.example", 8080).private


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "expected a host name"),
        ("*", "expected a host name"),
        ("*.", "expected a host name"),
        ("a.*.example", "expected a host name"),
        ("http://example.org", "expected a host, or a host and a port"),
        ("example.org/path", "expected a host name"),
        ("user@example.org", "expected a host name"),
        ("example.org:", "expected a host, or a host and a port"),
        ("example.org:0", "expected a port"),
        ("example.org:65536", "expected a port"),
        ("127.0.0.1", "127.0.0.1@private"),
        ("[::1]:80", "[::1]:80@private"),
        ("169.254.169.254", "169.254.169.254@private"),
        ("2130706433", "four decimal numbers"),
        ("0x7f000001", "four decimal numbers"),
        ("127.1", "four decimal numbers"),
        ("0177.0.0.1", "four decimal numbers"),
        ("::1", "expected a host, or a host and a port"),
        ("*.8.8.8.8", "an address has no names"),
        ("straße.example", "ASCII"),
        ("a b", "expected a host name"),
        ("-a.example", "expected a host name"),
        ("a..example", "expected a host name"),
        ("a" * 64 + ".example", "expected a host name"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused_with_the_reason(entry, said):
    with pytest.raises(ValueError, match="allow_hosts has") as caught:
        AllowList([entry])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        r"0x7f000001",
        r"0x7f.1",
        r"2130706433",
        r"127.1",
        r"0177.0.0.1",
        r"127.0.0.1:80",
        r"[::1",
        r"::1",
        r"[fe80::1%eth0]",
        r"a@b",
        r"a b",
        r".",
        r"..",
        r"a..b",
        r"%31",
        r"①.com",
        r"[127.0.0.1]",
        r"[v1.x]",
        r"a/b",
        r"a\b",
        "exa\tmple",
        "example.org\x00",
    ],
)
def test_odd_spellings_of_a_host_are_no_host(text):
    with pytest.raises(ValueError):
        normal_host(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("EXAMPLE.Org.", "example.org"), ("[::0001]", "::1"), ("[2001:DB8::1]", "2001:db8::1"), ("8.8.8.8.", "8.8.8.8")],
)
def test_one_host_has_one_spelling(text, host):
    assert normal_host(text) == host


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.3", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.0.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("198.18.0.1", "203.0.113.5", "::", "::1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "ff02::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ),
        *("2001:db8::1", "fec0::1", "2002:a00:1::1", "64:ff9b:1::1", "not an address"),
    ],
)
def test_addresses_that_lead_inside_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address):
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_wrapping_an_address_does_not_make_it_public(address):
    number = int(address)
    wrapped = [(0xFFFF << 32) | number, (0x64FF9B << 96) | number, (0x2002 << 112) | (number << 80)]
    if not is_public(str(address)):
        assert not any(is_public(str(ipaddress.IPv6Address(value))) for value in wrapped)


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fx.:\[\]@%*A-Z-]{1,40}", fullmatch=True))
def test_what_is_accepted_as_a_host_is_stable_and_harmless(text):
    with contextlib.suppress(ValueError):
        host, port = split_authority(text)
        assert split_authority(f"[{host}]" if ":" in host else host) == (host, None)
        assert not set(host) & set("@/\\%[]* \t\r\n\0")
        assert port is None or 0 < port < 65536
        assert not AllowList(["example.org", "*.example.org"]).judge(host, 443).allowed or host.endswith("example.org")
