"""Delivery to the trajectory API: groups that may have arrived or were consumed are not sent twice."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from aiohttp import web
from aiohttp.test_utils import TestServer
from atropos_envs import config

from hermes_atropos.trainer.api import (
    ApiAwayError,
    ApiForgotError,
    ApiRefusedError,
    Patience,
    Registration,
    TrajectoryApi,
)
from hermes_atropos.trainer.delivery import Delivery
from hermes_core.contracts.errors import ConfigError, UserError

JOINED = Registration(env_id=0, wandb_name="e", starting_step=0, num_steps=9, checkpoint_dir="", checkpoint_interval=-1)


class Api:
    """Answers each request with what a test gives it; keeps what arrived."""

    url = "http://api"

    def __init__(self):
        self.arrived = []
        self.statuses = []
        self.sends = []
        self.arriving = []
        self.registered = 0

    async def register(self, fields, patience):
        self.fields = fields
        self.registered += 1
        return JOINED if self.registered == 1 else Registration(**{**_fields(JOINED), "env_id": self.registered})

    async def info(self):
        return {"batch_size": 4, "max_token_len": 100}

    async def status(self, env_id):
        answer = self.statuses.pop(0) if self.statuses else {"self_queue_size": 0}
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send(self, groups, env_id):
        answer = self.sends.pop(0) if self.sends else "received"
        if isinstance(answer, Exception):
            if answer in self.arriving:
                self.arrived += groups
            raise answer
        self.arrived += [{**group, "env_id": env_id} for group in groups]
        return answer

    async def has(self, group):
        return bool(self.arrived) and self.arrived[-1]["group_overrides"]["group_id"] == _id(group)

    async def disconnect(self, env_id):
        raise ApiAwayError("gone")

    async def aclose(self):
        return None


def _fields(registration):
    return {name: getattr(registration, name) for name in Registration.__slots__}


def _id(group):
    return group["group_overrides"]["group_id"]


def group(name):
    return {"tokens": [[1]], "group_overrides": {"group_id": name}}


@pytest.fixture
async def delivery():
    made = Delivery(config(serve_poll_interval=0.001, api_patience=5), Api())
    await made.join()
    return made


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("max_token_length", 77, "max_token_length"),
        ("wandb_name", "mine", "desired_name"),
        ("inference_weight", 0.5, "weight"),
        ("min_batch_allocation", 0.25, "min_batch_allocation"),
        ("group_size", 4, "group_size"),
    ],
)
async def test_the_api_is_told_what_the_config_says(field, value, name):
    api = Api()
    await Delivery(config(**{field: value}), api).join()
    assert api.fields[name] == value


async def test_a_group_carries_the_number_of_its_environment(delivery):
    assert await delivery.send([group("a")]) == "received"
    assert [(_id(g), g["env_id"]) for g in delivery.api.arrived] == [("a", 0)]


async def test_what_surely_did_not_arrive_is_sent_again(delivery):
    delivery.api.sends = [ApiAwayError("refused")]
    await delivery.send([group("a")])
    assert [_id(g) for g in delivery.api.arrived] == ["a"]


async def test_what_may_have_arrived_is_looked_for_before_it_is_sent_again(delivery):
    lost_answer = ApiAwayError("broke off", may_have_run=True)
    delivery.api.sends = [lost_answer]
    delivery.api.arriving = [lost_answer]
    assert await delivery.send([group("a")]) == "received"
    assert [_id(g) for g in delivery.api.arrived] == ["a"]


async def test_what_may_have_arrived_and_did_not_is_sent_again(delivery):
    delivery.api.sends = [ApiAwayError("broke off", may_have_run=True)]
    await delivery.send([group("a")])
    assert [_id(g) for g in delivery.api.arrived] == ["a"]


async def test_an_api_that_forgot_us_is_joined_again_before_anything_is_sent(delivery):
    delivery.api.statuses = [ApiForgotError("restarted")]
    await delivery.send([group("a")])
    assert delivery.api.registered == 2
    assert delivery.api.arrived[0]["env_id"] == 2


async def test_a_registration_is_seen_only_with_what_the_trainer_says(delivery):
    """Each registration is adopted once, so one without the new limit would never be corrected."""
    assert delivery.registration.max_token_len == 100
    asked, gate = asyncio.Event(), asyncio.Event()

    async def info():
        asked.set()
        await gate.wait()
        return {"batch_size": 8, "max_token_len": 200}

    delivery.api.info = info
    delivery.api.statuses = [ApiForgotError("restarted")]
    sending = asyncio.create_task(delivery.send([group("a")]))
    await asked.wait()
    assert delivery.registration.env_id == 0
    gate.set()
    await sending
    assert (delivery.registration.env_id, delivery.registration.max_token_len) == (2, 200)


async def test_an_environment_that_could_not_join_still_unregisters():
    api = Api()
    gone = []
    api.disconnect = lambda env_id: _note(gone, env_id)
    made = Delivery(config(group_size=5, api_patience=5), api)
    with pytest.raises(ConfigError, match="expected a group_size of at most"):
        await made.join()
    await made.leave()
    assert gone == [0]


async def _note(gone, env_id):
    gone.append(env_id)


async def test_a_refusal_is_raised_at_once(delivery):
    delivery.api.sends = [ApiRefusedError("422")]
    with pytest.raises(ApiRefusedError):
        await delivery.send([group("a")])
    assert delivery.api.arrived == []


async def test_only_what_was_still_in_the_queue_is_sent_again_after_a_restart(delivery):
    for name in "abcd":
        await delivery.send([group(name)])
    delivery.api.statuses = [{"self_queue_size": 2}]
    await delivery.status()
    delivery.api.arrived.clear()
    delivery.api.statuses = [ApiForgotError("restarted")]
    await delivery.status()
    for task in list(delivery._resends):
        await task
    assert [_id(g) for g in delivery.api.arrived] == ["c", "d"]
    assert all(g["group_overrides"]["resent"] for g in delivery.api.arrived)


async def test_leaving_does_not_need_an_api_that_is_there(delivery):
    await delivery.leave()


async def test_patience_ends_with_what_was_waited_for_and_what_to_do():
    now = [0.0]

    async def sleep(seconds):
        now[0] += seconds

    patience = Patience(1.0, 0.4, sleep=sleep, clock=lambda: now[0])
    for _ in range(3):
        await patience.wait("nobody", "call them")
    with pytest.raises(UserError, match=r"nobody, for 1 s now\n  → call them"):
        await patience.wait("nobody", "call them")
    assert now[0] == pytest.approx(1.2)


@pytest.mark.parametrize("status", [408, 429, 502, 503])
async def test_a_proxy_that_would_take_it_later_refuses_nothing(status):
    async def busy(_request):
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/scored_data", busy)
    async with TestServer(app) as server:
        api = TrajectoryApi(str(server.make_url("")))
        with pytest.raises(ApiAwayError, match=f"answers {status}"):
            await api.send([group("a")], 0)
        await api.aclose()
