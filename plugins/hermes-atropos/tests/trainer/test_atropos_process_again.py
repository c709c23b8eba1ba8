"""Running the same `process` again: what it adds, repairs and refuses."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import PuzzleEnv, TokenDouble, config, environment, lines, says, server

from hermes_atropos import HermesAgentBaseEnv
from hermes_atropos.command import main
from hermes_core.contracts.errors import ModelAuthError, OutputError


def right(request):
    return says(str(2 * int(request.conversation.messages[0]["content"].partition("+")[0])))


class Output:
    """A folder and an environment with a `process` that writes there."""

    def __init__(self, folder, capsys):
        self._capsys = capsys
        self.path, self.ledger, self.progress = folder / "g.jsonl", folder / "ledger.jsonl", folder / "g.jsonl.progress"
        self.folder = folder
        self.answer = right
        self.kind = PuzzleEnv
        self.models = []

    def process(self, *words, **fields):
        """Run the command; return its output and exit code."""
        fields = {"data_path_to_save_groups": self.path, "ledger_path": self.ledger, **fields}
        flags = [f"--env.{name}={value}" for name, value in fields.items()]
        self.models.append(TokenDouble(self.answer))
        own = {"model": self.models[-1], "config_init": classmethod(lambda _cls: (config(), [server()]))}
        code = 0
        try:
            main(type("Env", (self.kind,), own), ["process", *flags, *words])
        except SystemExit as stopped:
            code = stopped.code
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def tasks(self):
        return sorted(group["group_overrides"]["task_id"] for group in lines(self.path))

    def asked(self):
        return len(self.models[-1].requests)


@pytest.fixture
def output(tmp_path, capsys):
    return Output(tmp_path, capsys)


def test_a_finished_output_says_so_and_runs_nothing(output):
    code, said = output.process()
    assert (code, f"{output.path}: 2 groups written, 0 failed, 0 from before" in said) == (0, True)
    files = output.files()
    code, said = output.process()
    assert f"{output.path} is complete with 2 groups, nothing was run" in said
    assert (code, output.asked(), output.models[-1].checked) == (0, 0, 0)
    assert output.files() == files


def test_groups_that_failed_are_not_repeated_either(output):
    output.answer = lambda _request: says("0")
    output.process(ensure_scores_are_not_same=True, total_steps=3)
    assert Counter(line["end"] for line in lines(output.ledger)) == {"rejected": 6}
    _, said = output.process(ensure_scores_are_not_same=True, total_steps=3)
    assert "is complete with 0 groups" in said
    assert len(lines(output.ledger)) == 6


def test_more_groups_are_added_to_a_finished_output(output):
    output.process()
    _, said = output.process(total_steps=5)
    assert f"{output.path}: 3 groups written, 0 failed, 2 from before" in said
    assert output.tasks() == ["p0", "p1", "p2", "p3", "p4"]
    assert len({line["rollout_id"] for line in lines(output.ledger)}) == len(lines(output.ledger)) == 10


def test_other_settings_than_at_first_are_refused_with_what_differs(output):
    output.process()
    files = output.files()
    code, said = output.process("--openai.model_name=other", group_size=3, agent_temperature=0.5, total_steps=3)
    assert code == 2
    assert "group_size (2 then, 3 now)" in said
    assert "agent_temperature (1.0 then, 0.5 now)" in said
    assert "models (['openai m'] then, ['openai other'] now)" in said
    assert "give another file: --env.data_path_to_save_groups FILE" in said
    assert output.files() == files


def test_how_fast_and_where_may_change_between_two_starts(output):
    output.process(total_steps=1)
    code, _ = output.process(
        "--openai.base_url=http://127.0.0.1:10/v1", max_concurrent_groups=1, tool_pool_size=3, wandb_name="again"
    )
    assert (code, output.tasks()) == (0, ["p0", "p1"])


def test_settings_of_a_start_without_records_do_not_matter(output):
    output.answer = lambda _request: ModelAuthError("401")
    assert output.process(max_concurrent_groups=1, group_size=3)[0] == 1
    output.progress.write_bytes(output.progress.read_bytes().partition(b"\n")[0] + b"\n")
    output.answer = right
    assert output.process()[0] == 0
    assert output.tasks() == ["p0", "p1"]


async def test_a_second_process_on_the_same_output_is_refused_while_the_first_lives(tmp_path):
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request):
        asked.set()
        await may_answer.wait()
        return right(request)

    path = tmp_path / "g.jsonl"
    first = environment(TokenDouble(answer), data_path_to_save_groups=str(path))
    second = environment(TokenDouble(right), data_path_to_save_groups=str(path))
    task = asyncio.create_task(first.process_manager())
    await asyncio.wait_for(asked.wait(), 60)
    with pytest.raises(OutputError, match=f"process {os.getpid()} is writing to {path}\n.*wait for it to end"):
        await second.process_manager()
    may_answer.set()
    await task
    assert (len(lines(path)), second.model.requests) == (2, [])


def test_groups_taken_out_of_the_file_are_an_error_and_not_rerun_in_silence(output):
    output.process()
    output.path.unlink()
    code, said = output.process()
    assert (code, "remove g.jsonl.progress to start again" in said) == (2, True)


def test_records_that_cannot_be_read_are_an_error(output):
    output.process()
    output.progress.write_text("{}\n{}\n")
    code, said = output.process()
    assert (code, "g.jsonl.progress is not a valid progress file" in said) == (2, True)


def test_every_cut_of_every_file_is_repaired(output):
    """Leftovers of a kill: a record without its whole group, then a group without all its ledger lines."""
    output.process(total_steps=1)
    one = output.files()
    output.process(total_steps=2)
    two = output.files()
    record = len(two["g.jsonl.progress"])
    started = [("g.jsonl.progress", size) for size in (len(one["g.jsonl.progress"]) + 1, record - 1, record)]
    cuts = [(*cut, len(one["g.jsonl"]), len(one["ledger.jsonl"])) for cut in started]
    cuts += [("g.jsonl.progress", record, len(two["g.jsonl"]) - less, len(one["ledger.jsonl"])) for less in (1, 40, 0)]
    for _, progress, data, ledger in cuts:
        output.progress.write_bytes(two["g.jsonl.progress"][:progress])
        output.path.write_bytes(two["g.jsonl"][:data])
        output.ledger.write_bytes(two["ledger.jsonl"][:ledger] + b'{"rollout')
        assert output.process(total_steps=2)[0] == 0
        assert output.files() == two


def test_an_interrupted_group_has_its_lines_and_is_repeated_under_other_ids(output):
    output.answer = lambda request: (
        right(request) if request.conversation.messages[0]["content"] == "0+0?" else ModelAuthError("401")
    )
    code, said = output.process(max_concurrent_groups=1)
    assert (code, "401" in said, output.tasks()) == (1, True, ["p0"])
    output.answer = right
    assert output.process()[0] == 0
    ledger = lines(output.ledger)
    assert output.tasks() == ["p0", "p1"]
    ends = Counter(line["end"] for line in ledger)
    assert (ends["sent"], ends["sent"] + ends["errored"] + ends["cancelled"]) == (4, 6)
    assert len({line["rollout_id"] for line in ledger}) == len(ledger)
    assert len({line["group_id"] for line in ledger}) == 3


def test_items_that_were_to_run_later_are_not_lost(output):
    class Splitting(PuzzleEnv):
        async def collect_trajectories(self, item):
            group, _ = await super().collect_trajectories(item)
            more = [self.puzzles[10], self.puzzles[11]] if item["id"] == "p0" else []
            return group, more

    def answer(request):
        question = request.conversation.messages[0]["content"]
        return ModelAuthError("401") if question == "11+11?" else right(request)

    output.kind, output.answer = Splitting, answer
    assert output.process(total_steps=1, max_concurrent_groups=1)[0] != 0
    assert output.tasks() == ["p0", "p10"]
    output.answer = right
    assert output.process(total_steps=1, max_concurrent_groups=1)[0] == 0
    assert output.tasks() == ["p0", "p10", "p11"]
    assert "is complete with 3 groups" in output.process(total_steps=1, max_concurrent_groups=1)[1]


def test_several_groups_of_one_item_are_written_together(output):
    class Halving(PuzzleEnv):
        async def postprocess_histories(self, trajectories):
            return [trajectories, {**trajectories, "group_overrides": {"task_id": "copy"}}]

    output.kind = Halving
    output.process(total_steps=1)
    whole = output.files()
    output.path.write_bytes(whole["g.jsonl"][: whole["g.jsonl"].index(b"\n") + 5])
    output.ledger.write_bytes(b"")
    assert output.process(total_steps=1)[0] == 0
    assert output.files() == whole


def test_other_items_of_the_dataset_than_at_first_are_refused(output):
    class Dataset(HermesAgentBaseEnv):
        name = "dataset"
        model = None
        reward_needs_sandbox = False

        def build_model(self):
            return self.model

        def compute_reward(self, item, result, ctx):
            return 1.0

        async def evaluate(self, *args, **kwargs):
            return {}

    data = output.folder / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}+{n}?"}) + "\n" for n in range(3)))
    output.kind = Dataset
    assert output.process(dataset_name=data, total_steps=1)[0] == 0
    data.write_text(json.dumps({"prompt": "5+5?"}) + "\n")
    code, said = output.process(dataset_name=data)
    assert (code, "dataset_items (" in said) == (2, True)


def test_the_seeds_of_an_item_do_not_depend_on_where_a_process_was_cut(output):
    output.process(total_steps=3)
    at_once = {request.seed for request in output.models[-1].requests}
    output.path, output.progress = output.folder / "h.jsonl", output.folder / "h.jsonl.progress"
    for steps in (1, 2, 3):
        output.process(total_steps=steps)
    cut = {request.seed for model in output.models[1:] for request in model.requests}
    assert len(at_once) == 6
    assert cut == at_once


async def test_without_a_file_nothing_is_continued_and_no_two_processes_share_an_id(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    for _ in range(2):
        env = environment(TokenDouble(right), ledger_path=str(ledger))
        assert (await env.process_manager())["groups_written"] == 2
    assert len({line["rollout_id"] for line in lines(ledger)}) == len(lines(ledger)) == 8
