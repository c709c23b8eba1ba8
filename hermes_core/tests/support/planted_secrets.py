"""Configurations with a mark at places for secrets, for tests that look for it where nothing secret may be."""

from __future__ import annotations

from hypothesis import strategies as st

MARK = "m4rk3r-m4rk3r"
NAMES = ("image", "hosts", "options", "max_tokens", "a b", "runtime")
SECRETS = ("token", "password", "DB_PASSWORD", "api-key", "apiKey", "Authorization", "private_key", "client_secret")
SECRETS += ("HFToken", "AWSSecretKey", "apikey", "key_passphrase", "passwd", "aws_secret_access_key")
PLACES = ("env", "env_vars", "environment", "headers", "extra_headers")
TEXTS = (
    f"https://user:{MARK}@host:8080/v1?x=1",
    f"http://{MARK}@host",
    f"redis://:{MARK}/with/slashes@host",
    f"https://u:p@{MARK}@host/a",
    f"see https://me:{MARK}@host/v1 and http://other",
)
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(("", "plain", "docker://ghcr.io/a/b@sha256:1f"))


def secret_structures():
    """Return strategies of small structures, each of which has the mark at a place for secrets."""
    mark = st.just(MARK)
    return st.one_of(
        st.dictionaries(st.sampled_from(SECRETS), mark | st.lists(mark, min_size=1), min_size=1),
        st.dictionaries(st.sampled_from(PLACES), st.dictionaries(st.sampled_from("AB"), mark), min_size=1),
        st.dictionaries(st.sampled_from(PLACES), st.lists(st.just(f"A={MARK}")), min_size=1),
        st.dictionaries(st.sampled_from(PLACES), st.just([{"name": "A", "value": MARK}]), min_size=1),
        st.dictionaries(st.sampled_from(PLACES), st.sampled_from((f"X-Anything: {MARK}", f"A=b;C={MARK}")), min_size=1),
        st.sampled_from(TEXTS),
    )


def nested_structures(leaves):
    """Return structures of these leaves within one another."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        max_leaves=12,
    )
