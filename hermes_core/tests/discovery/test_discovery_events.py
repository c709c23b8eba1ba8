"""Events reach every listener, each by itself."""

from __future__ import annotations

import asyncio
import sys

import pytest

from hermes_core.contracts.events import RolloutStarted

EVENT = RolloutStarted(rollout_id="r", task_id="t", group_id="g")
HOOK = "hermes_rollout_started"


def listener(body):
    return f"seen = []\n@hookimpl\ndef {HOOK}(event):\n    {body}"


def test_listeners_get_the_event_in_the_order_of_their_ids(site, load):
    shared = site.write("shared", "seen = []")
    for name in ("zeta-b", "alpha-a"):
        site.install(name, listener(f"import {shared}; {shared}.seen.append(('{name}', event))"))
    load("zeta-b", "alpha-a").fire(HOOK, EVENT)
    assert sys.modules[shared].seen == [("alpha-a", EVENT), ("zeta-b", EVENT)]


def test_a_listener_without_arguments_is_called_too(site, load):
    site.install("acme-short", f"seen = []\n@hookimpl\ndef {HOOK}():\n    seen.append(1)")
    load("acme-short").fire(HOOK, EVENT)
    assert sys.modules[site.module("acme_short")].seen == [1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("import asyncio; return asyncio.sleep(0)", "returned an awaitable"),
    ],
)
def test_a_listener_that_raises_is_counted_and_the_others_still_hear(site, load, body, message):
    """One implementation that raises made the whole call raise (pluggy), and a coroutine was never awaited."""
    site.install("acme-bad", listener(body))
    site.install("other-good", listener("seen.append(event)"))
    registry = load("acme-bad", "other-good")
    for _ in range(3):
        registry.fire(HOOK, EVENT)
    (problem,) = registry.event_problems
    assert (problem.plugin, problem.hook, problem.kind, problem.count) == ("acme-bad:bad", HOOK, "raised", 3)
    assert message in problem.message
    assert sys.modules[site.module("other_good")].seen == [EVENT] * 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_ctrl_c_and_cancellation_pass_through(site, load, error):
    site.install("acme-stop", listener(f"import asyncio; raise {_expression(error)}"))
    with pytest.raises(error):
        load("acme-stop").fire(HOOK, EVENT)


def _expression(error):
    return "asyncio.CancelledError" if error is asyncio.CancelledError else error.__name__


def test_a_slow_listener_is_recorded_with_how_long_it_took(site, load):
    # A busy loop by the CPU's own clock: slow on any machine, and nobody sleeps.
    body = "import time; start = time.perf_counter()\n    while time.perf_counter() - start < 0.06: pass"
    site.install("acme-slow", listener(body))
    registry = load("acme-slow")
    registry.fire(HOOK, EVENT)
    (problem,) = registry.event_problems
    assert (problem.kind, problem.count) == ("slow", 1)
    assert problem.seconds > 0.05
    assert "ms on the event loop" in problem.message


def test_the_record_stays_small_however_often_something_fails(site, load):
    site.install("acme-bad", listener("raise ValueError('x' * 100_000)"))
    registry = load("acme-bad")
    for _ in range(200):
        registry.fire(HOOK, EVENT)
    (problem,) = registry.event_problems
    assert problem.count == 200
    assert len(problem.message) <= 500


def test_an_unknown_event_is_an_error_of_the_caller(load):
    with pytest.raises(KeyError):
        load().fire("hermes_rollout_begun", EVENT)


def test_a_declaration_hook_cannot_be_fired(load):
    with pytest.raises(KeyError):
        load().fire("hermes_tools", EVENT)
