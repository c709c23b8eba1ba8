"""`serve` against the real trajectory API: every sequence arrives once, nothing is wasted, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, TokenDouble, environment, lines, says
from trajectory_api import RunApi, api_with_trainer, trainer_at

from hermes_core.contracts.errors import ConfigError, UserError


@pytest.fixture(scope="module")
def running():
    api = RunApi()
    api.start()
    yield api
    api.kill()


@pytest.fixture
async def trainer(running):
    async with trainer_at(running.url) as trainer:
        await trainer.ready()
        await trainer.ask("POST", "/register", REGISTRATION)  # so that there is something to reset
        async with trainer._session.get(f"{running.url}/reset_data") as response:
            assert response.status == 200
        yield trainer


REGISTRATION = {
    "wandb_group": "g",
    "wandb_project": "p",
    "batch_size": 2,
    "max_token_len": 9,
    "checkpoint_dir": "",
    "save_checkpoint_interval": -1,
    "starting_step": 0,
    "num_steps": 1,
}


def alternating_model():
    """Answer right every second time, so that scores differ."""
    seen = []

    def answer(request):
        seen.append(request)
        number = int(request.conversation.messages[0]["content"].partition("+")[0])
        return says(str(2 * number) if len(seen) % 2 else "?")

    return TokenDouble(answer)


def new_env(model, trainer, kind=PuzzleEnv, **fields):
    defaults = {
        "rollout_server_url": trainer.url,
        "serve_poll_interval": 0.02,
        "api_patience": 30,
        "max_num_workers": 4,
        "total_steps": 50,
    }
    return environment(model, kind=kind, **{**defaults, **fields})


@contextlib.asynccontextmanager
async def serving(env):
    """Serve in the background; the block ends it, and an end before that is an error."""
    task = asyncio.create_task(env.env_manager())
    block = asyncio.current_task()
    task.add_done_callback(lambda _: block.cancel())
    try:
        yield task
    except asyncio.CancelledError:
        if task.done() and not task.cancelled():
            block.uncancel()
            raise AssertionError("the service ended by itself") from task.exception()
        raise
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
                await asyncio.sleep(0)
            block.uncancel()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_every_sequence_reaches_the_trainer_as_it_was_sampled(trainer, tmp_path):
    await trainer.register(batch_size=4)
    path = tmp_path / "ledger.jsonl"
    env = new_env(alternating_model(), trainer, total_steps=3, ledger_path=str(path), ensure_scores_are_not_same=True)
    task = asyncio.create_task(env.env_manager())
    for _ in range(3):
        await trainer.batch()
    await asyncio.wait_for(task, 60)
    groups = [group for batch in trainer.batches for group in batch]
    assert len(groups) == 6
    assert all(group["tokens"] == [[1, 2, 10, 3]] * 2 for group in groups)
    assert all(group["inference_logprobs"] == [[1.0, 1.0, -0.5, -0.5]] * 2 for group in groups)
    assert all(sorted(group["scores"]) == [0.0, 1.0] for group in groups)
    ids = [about["rollout_id"] for group in groups for about in group["overrides"]]
    assert len(set(ids)) == 12
    ledger = {line["rollout_id"]: line for line in lines(path)}
    assert {ledger[rollout]["end"] for rollout in ids} == {"sent"}
    assert len(ledger) == len(lines(path))
    assert env.ledger.summary()["open"] == 0


async def test_enough_in_the_queue_for_all_steps_cancels_nothing_that_is_in_flight(trainer):
    """Atropos takes the queue for the end of the training, and cancels what still runs."""
    gate, slow = asyncio.Event(), []

    async def answer(request):
        if request.conversation.messages[0]["content"] in {"0+0?", "1+1?"}:
            slow.append(request)
            await gate.wait()
        return says("x")

    await trainer.register()
    env = new_env(TokenDouble(answer), trainer, total_steps=1, max_batches_offpolicy=10)
    task = asyncio.create_task(env.env_manager())
    await trainer.queued(2)
    await until(lambda: len(env.ledger.open) == len(slow) == 4)
    assert not task.done()
    gate.set()
    await asyncio.wait_for(task, 60)
    summary = env.ledger.summary()
    assert (summary["cancelled"], summary["open"]) == (0, 0)
    assert summary["sent"] == 2 * await trainer.queue()


@pytest.mark.parametrize("wanted", [False, True])
async def test_messages_go_to_the_trainer_only_when_they_are_asked_for(trainer, wanted):
    await trainer.register()
    env = new_env(alternating_model(), trainer, include_messages=wanted)
    async with serving(env):
        (group,) = await trainer.batch()
    assert (group["messages"] is not None) is wanted


async def test_a_full_queue_pauses_admission_and_what_is_in_flight_is_sent(trainer):
    """Peers 4, 14: bare atroposlib cancels it."""
    gate, waiting = asyncio.Event(), []

    async def answer(_request):
        waiting.append(1)
        if len(waiting) > 4:
            await gate.wait()
        return says("x")

    await trainer.register(batch_size=2)
    env = new_env(TokenDouble(answer), trainer, max_batches_offpolicy=2, max_num_workers=2)
    async with serving(env):
        await trainer.queued(2)
        await until(lambda: getattr(env, "status_dict", {}).get("queue_size") == 2)
        # Until then a worker may still wait for the answer to a group that is in the queue already.
        await until(lambda: len(waiting) == 4 + 2 * len(env.workers))
        in_flight = len(env.workers)
        begun = len(waiting)
        gate.set()
        await trainer.queued(2 + in_flight)
        assert len(waiting) == begun
        assert env.ledger.summary()["cancelled"] == 0
        await trainer.batch()
        await trainer.batch()
        await until(lambda: len(waiting) > begun)


async def test_an_evaluation_pauses_admission_and_what_is_in_flight_is_sent(trainer):
    class Evaluated(PuzzleEnv):
        async def setup(self):
            await super().setup()
            self.evaluating, self.go_on = asyncio.Event(), asyncio.Event()

        async def evaluate(self, *args, **kwargs):
            self.evaluating.set()
            await self.go_on.wait()

    gate, waiting = asyncio.Event(), []

    async def answer(request):
        waiting.append(request.conversation.messages[0]["content"])
        if waiting[-1] != waiting[0]:  # only the first group runs at once
            await gate.wait()
        return says("x")

    await trainer.register(batch_size=2)
    env = new_env(TokenDouble(answer), trainer, kind=Evaluated, steps_per_eval=1, max_num_workers=2)
    async with serving(env):
        await trainer.batch()
        await asyncio.wait_for(env.evaluating.wait(), 60)
        # Until then a worker may not have asked yet, or not have heard that its group has arrived.
        await until(lambda: len(waiting) == 2 + 2 * len(env.workers))
        in_flight, begun = set(env.workers), len(waiting)
        assert in_flight
        gate.set()
        await trainer.queued(len(in_flight))
        await until(lambda: not env.workers)
        assert len(waiting) == begun
        assert not any(worker.cancelled() for worker in in_flight)
        env.go_on.set()
        await until(lambda: len(waiting) > begun)


async def test_what_the_api_refuses_is_recorded_with_its_answer(trainer):
    """Peers 4, 17: it vanished with a log line."""

    class Odd(PuzzleEnv):
        async def postprocess_histories(self, trajectories):
            return {**trajectories, "ref_logprobs": [["much"], ["more"]]}

        async def add_rollouts_for_wandb(self, scored_data, item=None):
            return None

    await trainer.register()
    env = new_env(alternating_model(), trainer, kind=Odd)
    async with serving(env):
        await until(lambda: env.ledger.summary()["rejected"] >= 2)
    reasons = {entry.reason for entry in env.ledger.entries if entry.end == "rejected"}
    assert all(reason.startswith("the trajectory API refuses /scored_data with 422: ") for reason in reasons)
    assert await trainer.queue() == 0


async def test_phase_one_is_not_served(trainer):
    with pytest.raises(ConfigError, match=r"token ids and logprobs for serve(.|\n)*server_type: vllm"):
        await new_env(ChatDouble(), trainer).env_manager()


async def test_what_is_not_trainable_is_never_sent_and_soon_ends_the_service(trainer):
    class OwnGroups(PuzzleEnv):
        async def collect_trajectories(self, item):
            return await super().collect_trajectories(item)

    await trainer.register()
    env = new_env(ChatDouble(), trainer, kind=OwnGroups)
    with pytest.raises(UserError, match=r"\d groups in a row cannot be sent: not trainable: the server gave no token"):
        await env.env_manager()
    reasons = {entry.reason for entry in env.ledger.entries if entry.end == "rejected"}
    assert reasons == {"not trainable: the server gave no token ids"}
    assert env.ledger.summary()["open"] == 0
    assert await trainer.queue() == 0


async def test_a_trainer_that_is_not_there_is_one_clear_message(trainer):
    env = new_env(alternating_model(), trainer, api_patience=0.1)
    with pytest.raises(UserError, match=r"runs, but its trainer has not started(.|\n)*start the trainer"):
        await env.env_manager()


async def test_an_api_that_is_not_there_is_one_clear_message(trainer):
    env = new_env(alternating_model(), trainer, api_patience=0.1, rollout_server_url="http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"no trajectory API answers at http://127.0.0.1:9(.|\n)*run-api"):
        await env.env_manager()


async def test_a_group_that_fits_in_no_batch_is_refused_at_once(trainer):
    await trainer.register(batch_size=2)
    with pytest.raises(ConfigError, match="the trainer's batch_size 2, got 4"):
        await new_env(alternating_model(), trainer, group_size=4).env_manager()


async def test_a_group_that_takes_too_long_is_stopped_with_its_reason(trainer):
    async def answer(_request):
        await asyncio.Event().wait()

    await trainer.register()
    env = new_env(TokenDouble(answer), trainer, worker_timeout=0.05, max_num_workers=1)
    async with serving(env):
        await until(lambda: env.ledger.summary()["cancelled"] >= 2)
    assert env.ledger.entries[0].reason == "worker_timeout: 0.05 s"


async def test_a_service_that_is_stopped_cleans_up_and_says_so(trainer):
    asked, gone = [], []

    async def answer(_request):
        asked.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            gone.append(1)

    await trainer.register()
    env = new_env(TokenDouble(answer), trainer, max_num_workers=3)
    async with serving(env):
        # A rollout is in the ledger before its model is asked.
        await until(lambda: len(asked) == 6)
    assert len(gone) == 6
    assert env.ledger.summary() == {"sent": 0, "rejected": 0, "errored": 0, "cancelled": 6, "open": 0}
    assert {entry.reason for entry in env.ledger.entries} == {"the service was stopped"}


async def test_the_end_of_the_training_is_the_reason_of_what_it_stops(trainer):
    seen = []

    async def answer(request):
        seen.append(request.conversation.messages[0]["content"])
        if seen[-1] != seen[0]:  # only the first group runs at once
            await asyncio.Event().wait()
        return says("x")

    await trainer.register()
    env = new_env(TokenDouble(answer), trainer, total_steps=1, max_num_workers=2)
    task = asyncio.create_task(env.env_manager())
    await trainer.batch()
    await asyncio.wait_for(task, 60)
    stopped = {entry.reason for entry in env.ledger.entries if entry.end == "cancelled"}
    assert stopped == {"training has ended"}
    assert (await trainer.ask("GET", "/status"))["current_step"] == 1


async def test_an_author_who_fails_costs_one_group_and_its_lines_are_closed(trainer):
    class Failing(PuzzleEnv):
        async def postprocess_histories(self, trajectories):
            raise KeyError("oops")

    await trainer.register()
    env = new_env(alternating_model(), trainer, kind=Failing)
    async with serving(env):
        await until(lambda: env.ledger.summary()["errored"] >= 4)
    assert {e.reason for e in env.ledger.entries if e.end == "errored"} == {"KeyError: 'oops'"}


async def test_branches_beyond_the_group_size_arrive_in_parts(trainer):
    def samples(session):
        return [session.sample(), session.sample(branch=1, reason="edit")]

    await trainer.register(batch_size=2)
    env = new_env(TokenDouble(samples=samples), trainer)
    async with serving(env):
        first, second = await trainer.batch(), await trainer.batch()
    groups = [*first, *second]
    assert {len(group["tokens"]) for group in groups} == {2}
    assert all(group["advantages"] is not None for group in groups)
    assert {group["group_overrides"]["parts"] for group in groups} == {2}


@pytest.mark.parametrize(("least", "reports"), [(1, 1), (99, 0)])
async def test_metrics_are_reported_when_enough_was_sent(trainer, least, reports):
    class Reporting(PuzzleEnv):
        logged = 0

        async def wandb_log(self, wandb_metrics=None):
            self.logged += 1

    await trainer.register()
    env = new_env(alternating_model(), trainer, kind=Reporting, min_items_sent_before_logging=least)
    async with serving(env):
        await trainer.batch()
        await until(lambda: env.curr_step > 0)
    assert min(env.logged, 1) == reports


async def test_a_shrunk_group_waits_in_the_apis_buffer_and_the_ledger_says_so(trainer):
    from hermes_core.contracts.errors import ModelServerError

    seen = []

    def answer(_request):
        seen.append(1)
        return ModelServerError("502") if len(seen) == 1 else says("x")

    await trainer.register(batch_size=2)
    env = new_env(TokenDouble(answer), trainer, failed_rollouts="shrink", min_group_size=1, max_num_workers=1)
    async with serving(env):
        await trainer.queued(1)
    reasons = [entry.reason for entry in env.ledger.entries if entry.end == "sent"]
    assert reasons[0] == "buffered by the trajectory API until the sizes fit"


async def test_bare_api_takes_data_before_its_trainer_and_then_forgets_what_the_trainer_says(trainer):
    """Why the API is asked before anything is sent to it."""
    await trainer.ask("POST", "/scored_data", {"tokens": [[1]], "masks": [[1]], "scores": [1.0]})
    await trainer.ask("POST", "/register", REGISTRATION)
    assert (await trainer.ask("GET", "/info"))["batch_size"] == -1


async def test_an_api_that_does_not_come_back_ends_the_service_with_every_line_closed():
    async with api_with_trainer(batch_size=2) as (api, trainer):
        env = new_env(alternating_model(), trainer, api_patience=1.0)
        task = asyncio.create_task(env.env_manager())
        await trainer.queued(1)
        api.kill()
        with pytest.raises(UserError, match=r"no trajectory API answers at(.|\n)*start it and its trainer"):
            await asyncio.wait_for(task, 60)
    assert env.ledger.summary()["open"] == 0
    assert env.ledger.summary()["sent"] >= 2


async def test_an_api_that_restarts_gets_what_was_lost_and_the_service_goes_on():
    async with api_with_trainer(batch_size=2) as (api, trainer):
        env = new_env(
            alternating_model(), trainer, max_batches_offpolicy=3, total_steps=50, ensure_scores_are_not_same=True
        )
        async with serving(env) as service:
            await trainer.queued(3)
            await until(lambda: env.status_dict["queue_size"] >= 3)
            api.kill()
            lost = {entry.group_id for entry in env.ledger.entries if entry.end == "sent"}
            api.start()
            await trainer.ready()
            await trainer.register(batch_size=2, starting_step=1)
            arrived = []
            async with asyncio.timeout(60):
                while not lost <= set(arrived):
                    arrived += [group["group_overrides"]["group_id"] for group in await trainer.batch()]
            assert not service.done()
        assert len(lost) >= 3
        assert len(arrived) == len(set(arrived))
