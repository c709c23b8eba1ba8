"""The engine that the other tests trust: it answers, dies and comes back, and counts its requests."""

from __future__ import annotations

import urllib.error

import pytest


def test_a_killed_engine_answers_nothing_and_comes_back_at_the_same_address(engine):
    before = engine.url
    engine.kill()
    with pytest.raises(urllib.error.URLError):
        engine.get("/health")
    engine.restart()
    assert engine.url == before
    assert engine.running_requests() == 0
    assert engine.model_name in engine.get("/v1/models")
