"""A pool's statistics and slot records, and hermes-agent's names."""

from __future__ import annotations

import pytest
from pool_support import request, slot_pool
from pydantic import ValidationError

from hermes_core.contracts.errors import ConfigError
from hermes_pool import PoolOptions, Slot, SlotPoolConfig, SlotState
from hermes_pool.statistics import Waits


async def test_slots_are_listed_with_their_trajectory_and_no_number_is_used_twice():
    async with slot_pool(max_hosts=1, slots_per_host=2) as (pool, engine):
        seat = await pool.acquire("key", engine.make, 9, request("rollout-1"))
        taken, free = pool.slots()
        assert (taken.slot_id, taken.state, taken.trajectory_id) == ("slot_1", SlotState.ACQUIRED, "rollout-1")
        assert (free.slot_id, free.state, free.trajectory_id) == ("slot_2", SlotState.AVAILABLE, None)
        assert taken.key == f"{taken.alloc_id}:slot_1"
        await seat.release()
        assert [slot.slot_id for slot in pool.slots()] == ["slot_2", "slot_3"]


async def test_waits_are_counted():
    async with slot_pool(max_hosts=1, slots_per_host=1) as (pool, engine):
        for _ in range(5):
            await (await pool.acquire("key", engine.make, 9, request())).release()
        waits = pool.stats().waits
        assert waits.count == 5
        assert waits.longest >= waits.p99 >= waits.p50 >= 0


def test_waits_are_kept_in_constant_space():
    """hermes-agent's defect: its list of latencies grew without bound."""
    waits = Waits()
    for n in range(50_000):
        waits.add(float(n))
    assert len(waits._sample) == 1024
    summary = waits.summary()
    assert (summary.count, summary.longest) == (50_000, 49_999.0)
    assert 22_000 < summary.p50 < 28_000


def test_a_slot_is_the_same_after_conversion_to_json_and_back():
    slot = Slot(slot_id="slot_3", alloc_id="a1", state=SlotState.EXECUTING, trajectory_id="t", metadata={"x": 1})
    assert Slot.from_dict(slot.to_dict()) == slot
    assert slot.to_dict()["state"] == "executing"
    with pytest.raises(ValueError, match="asleep"):
        Slot.from_dict({"slot_id": "slot_3", "alloc_id": "a1", "state": "asleep"})


def test_hermes_agent_s_config_is_translated_to_options_of_pool_and_nomad():
    config = SlotPoolConfig(slots_per_container=7, min_containers=2, max_containers=5, acquire_timeout=12)
    options = config.pool_options()
    assert (options.min_hosts, options.max_hosts, options.slots_per_host, options.acquire_timeout) == (2, 5, 7, 12)
    nomad = config.backend_options()
    assert nomad["nomad_address"] == "http://localhost:4646"
    assert (nomad["sandbox_job_id"], nomad["datacenters"], nomad["driver"]) == ("atropos-sandbox", ["dc1"], "docker")
    with pytest.raises(ValidationError):
        SlotPoolConfig.model_validate({"slots": 3})
    with pytest.raises(ConfigError, match="because a pool builds no image"):
        SlotPoolConfig(dockerfile_path="Dockerfile").backend_options()


def test_fields_of_hermes_agent_without_effect_are_logged(caplog):
    SlotPoolConfig()
    assert caplog.messages == []
    SlotPoolConfig(scale_cooldown=30, auto_build_local_image=True)
    assert [message.split(":")[0] for message in caplog.messages] == [
        "auto_build_local_image has no effect",
        "scale_cooldown has no effect",
    ]


def test_bounds_that_contradict_each_other_are_refused():
    with pytest.raises(ValidationError, match="more than max_hosts"):
        PoolOptions(min_hosts=3, max_hosts=2)
    with pytest.raises(ValidationError):
        PoolOptions.model_validate({"slots": 3})
