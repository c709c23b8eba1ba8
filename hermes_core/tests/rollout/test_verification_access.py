"""How far a verifier is from the model: live, a read-only copy, or a fresh sandbox with named artifacts."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest
from rollout_script import Script, call, calls, says
from sandbox_support import processes_of, require

from hermes_core.contracts.errors import BackendError, VerifierError, WorkspaceError
from hermes_core.contracts.rollout import RewardStatus
from hermes_core.contracts.sandbox import SandboxSpec
from hermes_core.contracts.task import Precautions, Task, TaskFile
from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
from hermes_core.rollout.verification.artifacts import await_answer
from hermes_core.specs import Ref, VerifierSpec
from hermes_core.tooling.selection import select_tools
from hermes_sandbox.local import LocalBackend
from hermes_testing.watching import TooSoon, eventually, with_more_time

BWRAP = SandboxSpec(isolation="bwrap")
bwrap = pytest.mark.component("bwrap")


@pytest.fixture
def judge(registry):
    """Run commands and have a verifier judge: `await judge("frozen", "echo ok > answer.txt", level="bwrap")`."""

    async def judge(name, *commands, options=None, level="none", runtime=None, **fields):
        require(level)
        task = Task(
            id="t",
            messages=({"role": "user", "content": "do it"},),
            verifier=Ref(kind="verifier", name=name, options=options or {}),
            **fields,
        )
        turns = [calls(call("terminal", json.dumps({"command": command}))) for command in commands]
        group = GroupPlan(group_id="g", task=task, tools=select_tools(registry, enabled_toolsets=["terminal"]))
        spec = SandboxSpec(isolation=level)
        async with Runtime(registry, sandbox=spec, **(runtime or {})) as made:
            return await run_rollout(RolloutSpec(rollout_id="r", group=group), made, Script(*turns, says("done")))

    return judge


def sandboxes(outcome):
    """Return the id of the live sandbox and those of the ones made for judging."""
    used = [place["sandbox"]["sandbox_id"] for place in outcome.provenance["verification"].get("places", ())]
    return outcome.provenance["sandbox"]["sandbox_id"], used


FREEZE = Precautions(access="read_only")


@bwrap
async def test_a_read_only_verifier_sees_the_workspace_of_the_rollout_in_another_sandbox(judge):
    outcome = await judge("frozen", "echo ok > answer.txt", level="bwrap")
    assert (outcome.reward, outcome.reward_failure) == (1.0, None)
    live, used = sandboxes(outcome)
    assert len(used) == 1
    assert live not in used
    assert outcome.provenance["verification"]["access"] == "read_only"


@bwrap
async def test_nothing_can_change_a_frozen_workspace_and_tmp_stays_writable(judge):
    tries = "echo x > new; echo x > answer.txt; rm -f answer.txt; chmod 777 answer.txt; mkdir d; "
    look = {"command": tries + "touch /tmp/mine $HOME/mine && cat answer.txt && ls"}
    outcome = await judge("looks", "echo ok > answer.txt", options=look, level="bwrap", precautions=FREEZE)
    assert outcome.reward == 1.0, outcome.reward_failure
    assert outcome.reward_detail.splitlines()[-2:] == ["ok", "answer.txt"]
    assert "Read-only file system" in outcome.reward_detail


@bwrap
async def test_a_frozen_copy_has_links_modes_and_bytes_and_not_what_the_rollout_deleted(judge):
    work = (
        "printf '\\0\\377' > bytes && chmod 750 bytes && mkdir -p a/b && ln -s ../bytes a/link && ln -s /etc/x out"
        " && rm given.txt"
    )
    check = "[ $(stat -c %a bytes) = 750 ] && cmp bytes a/link && [ $(readlink out) = /etc/x ] && [ ! -e given.txt ]"
    given = (TaskFile(path="given.txt", data=b"x"),)
    outcome = await judge("looks", work, options={"command": check}, level="bwrap", precautions=FREEZE, files=given)
    assert outcome.reward == 1.0, outcome.reward_detail


@bwrap
async def test_what_the_rollout_left_outside_the_workspace_is_not_in_the_copy(judge):
    work = "echo 'exit 0' > ~/.bashrc; touch /tmp/forged ~/bin"
    check = '[ -z "$(ls -A ~ /tmp | grep -e forged -e bin -e bashrc)" ]'
    outcome = await judge("looks", work, options={"command": check}, level="bwrap", precautions=FREEZE)
    assert outcome.reward == 1.0, outcome.reward_detail


async def test_a_place_that_cannot_be_frozen_gives_no_reward_and_says_what_can(judge):
    outcome = await judge("frozen", "echo ok > answer.txt")
    assert (outcome.reward, outcome.reward_status) == (None, RewardStatus.ERROR)
    assert "cannot make its workspace read-only" in outcome.reward_failure.message


async def test_a_backend_of_somebody_else_that_cannot_freeze_is_refused(judge, monkeypatch):
    from hermes_sandbox.backends import BackendSandbox

    monkeypatch.delattr(BackendSandbox, "freeze")
    outcome = await judge("frozen", "echo ok > answer.txt")
    assert "sandboxes of 'local' cannot be frozen" in outcome.reward_failure.message


LEVELS = ["none", pytest.param("bwrap", marks=bwrap)]


@pytest.mark.parametrize("level", LEVELS)
async def test_a_fresh_sandbox_holds_the_task_s_files_and_the_named_artifacts_only(judge, level):
    look = {"command": "ls; cat given.txt made.txt out/deep/x"}
    outcome = await judge(
        "looks",
        "echo spoilt > given.txt; echo made > made.txt; mkdir -p out/deep; echo x > out/deep/x; touch other",
        options=look,
        level=level,
        files=(TaskFile(path="given.txt", data=b"given\n"),),
        setup=("touch set-up",),
        precautions=Precautions(access="fresh", artifacts=("made.txt", "out", "nowhere")),
    )
    assert outcome.reward_detail.split() == ["given.txt", "made.txt", "out", "set-up", "given", "made", "x"]
    place = outcome.provenance["verification"]["places"][0]
    assert place["artifacts"] == {"made.txt": "copied", "out": "copied", "nowhere": "missing"}


async def test_an_artifact_takes_the_place_of_the_task_s_own_and_a_deleted_one_is_missing(judge):
    given = tuple(TaskFile(path=path, data=b"old") for path in ("d/stale", "gone", "kept"))
    outcome = await judge(
        "looks",
        "rm -r d gone; mkdir d; echo new > d/new",
        options={"command": "find . -type f | sort"},
        files=given,
        precautions=Precautions(access="fresh", artifacts=("d", "gone")),
    )
    assert outcome.reward_detail.split() == ["./d/new", "./kept"]


TO_THE_TOP = "/.." * 30
"""From however deep a workspace may lie."""


@pytest.mark.parametrize(
    ("trick", "said"),
    [
        ("ln -s /etc/passwd result", "leads out of the workspace"),
        ("ln -s /etc result", "leads out of the workspace"),
        (f"ln -s . a; ln -s a/a/a{TO_THE_TOP} b; ln -s b/etc/passwd result", "leads out of the workspace"),
        ("ln -s result result", "missing"),
        ("ln -s nothing result", "missing"),
        ("mkfifo result", "is a other, which is not copied"),
    ],
)
async def test_an_artifact_that_leads_elsewhere_is_not_followed(judge, trick, said):
    outcome = await judge(
        "looks",
        trick,
        options={"command": "[ ! -e result ] && [ ! -L result ]"},
        precautions=Precautions(access="fresh", artifacts=("result",)),
    )
    assert outcome.reward == 1.0
    assert outcome.provenance["verification"]["places"][0]["artifacts"] == {"result": said}


async def test_links_in_an_artifact_are_kept_where_they_stay_in_it(judge):
    work = (
        "mkdir -p out/s && echo x > out/s/x && cd out && ln -s s/x in && ln -s /etc/passwd abs && ln -s ../.. up"
        " && ln -s . a && ln -s a/a/a/../../.. tricky && cd .. && ln -s out result"
    )
    outcome = await judge(
        "looks",
        work,
        options={"command": "ls result; cat result/in; [ ! -L result ]"},
        precautions=Precautions(access="fresh", artifacts=("result",)),
    )
    assert outcome.reward_detail.split() == ["a", "in", "s", "x"]
    said = outcome.provenance["verification"]["places"][0]["artifacts"]["result"]
    assert said == "copied without 3 symlinks that lead out of it"


MAKE_CHAINS = """
import os
os.makedirs("out/d")
os.symlink("s/x", "out/in0"), os.symlink("/etc", "out/d/out0"), os.symlink("loop1", "out/loop0")
for n in range(1, 6000):
    os.symlink(f"in{n - 1}", f"out/in{n}")
    os.symlink(f"./out{n - 1}", f"out/d/out{n}")
    os.symlink(f"d/../loop{(n + 1) % 6000}", f"out/loop{n}")
"""


async def test_links_that_lead_to_links_are_followed_once_however_many_they_are(judge):
    """To follow each of them anew took minutes, or ended in an error that was nobody's."""
    script = f"import os\nos.makedirs('out/s'), open('out/s/x', 'w').write('x')\n{MAKE_CHAINS}"
    outcome = await judged_fresh(judge, script, "ls out | wc -l; ls out/d | wc -l; cat out/in9")
    assert outcome.reward_detail.split() == ["12002", "0", "x"]
    said = outcome.provenance["verification"]["places"][0]["artifacts"]["out"]
    assert said == "copied without 6000 symlinks that lead out of it"


MAKE_GROWING = """
import os
os.makedirs("out"), os.symlink("x", "out/l0")
[os.symlink(f"l{n - 1}/" + "a" * 4000, f"out/l{n}") for n in range(1, 300)]
"""
MAKE_DEEP = """
import os
[(os.mkdir(name), os.chdir(name)) for name in ["out", *["n" * 200] * 25]]
"""


async def judged_fresh(judge, script, command):
    asked = Precautions(access="fresh", artifacts=("out",))
    return await judge("looks", f"python3 - <<'.'\n{script}.", options={"command": command}, precautions=asked)


async def test_links_whose_paths_grow_without_end_lead_out(judge):
    """What they lead to was kept as a text for each of them, as long as all before it together."""
    assert (await judged_fresh(judge, MAKE_GROWING, "ls out")).reward_detail.split() == ["l0", "l1"]


async def test_folders_that_are_too_deep_to_be_copied_are_the_rollouts(judge):
    assert "a path of more than 4096 bytes" in (await judged_fresh(judge, MAKE_DEEP, "true")).reward_detail


STAY = {
    "to-root": ".",
    "up-again": "s/../s//x",
    "dangling": "nothing/../s",
    "loop": "loop/x",
    "through": "to-root/to-root/s",
    "way": "missing/deep",
    "back-from-nowhere": "way/../..",
    "beside-a-file": "s/x/../x",
}
DO_NOT = {
    "absolute": "/nothing",
    "through-the-absolute": "absolute/../..",
    "up": "../out/s",
    "up-in-the-middle": "s/../../other",
    "link-to-out": "through/../../up",
    "from-nowhere": "missing/../../etc",
    "out-of-nowhere": "way/../../..",
    "loop-and-out": "loop/../../../x",
}


async def test_each_link_of_an_artifact_is_judged_by_where_it_leads_not_by_what_was_dropped_before(judge):
    links = " && ".join(f"ln -s {target} out/{name}" for name, target in {**DO_NOT, **STAY}.items())
    outcome = await judge(
        "looks",
        f"mkdir -p out/s other && touch out/s/x && {links}",
        options={"command": "ls out"},
        precautions=Precautions(access="fresh", artifacts=("out",)),
    )
    assert sorted(outcome.reward_detail.split()) == sorted(["s", *STAY])
    said = outcome.provenance["verification"]["places"][0]["artifacts"]["out"]
    assert said == f"copied without {len(DO_NOT)} symlinks that lead out of it"


async def test_links_through_a_million_folders_are_the_rollout_s_own_fault(judge):
    outcome = await judge(
        "looks",
        'mkdir out; python3 -c \'import os; [os.symlink("x/" * 2000, f"out/{n}") for n in range(600)]\'',
        options={"command": "true"},
        precautions=Precautions(access="fresh", artifacts=("out",)),
    )
    assert outcome.reward == 0.0
    assert "lead through more folders than can be looked at" in outcome.reward_detail


async def test_a_verifier_s_own_artifacts_are_the_default_and_the_task_s_win(judge):
    assert (await judge("fresh", "echo ok > answer.txt")).reward == 1.0
    none = Precautions(artifacts=())
    assert (await judge("fresh", "echo ok > answer.txt", precautions=none)).reward == 0.0


@pytest.mark.parametrize("level", LEVELS)
async def test_a_fresh_sandbox_hears_nothing_of_processes_homes_or_sessions_of_the_rollout(judge, level):
    work = (
        "echo 'cat() { echo forged; }' | tee ~/.bashrc ~/.profile > env; export BASH_ENV=$PWD/env LD_PRELOAD=x.so;"
        " cat() { echo forged; }; export -f cat; alias ls=false; mkdir -p ~/bin; PATH=~/bin:$PATH;"
        " (setsid sh -c 'while :; do echo forged > answer.txt; done' >/dev/null 2>&1 &)"
    )
    outcome = await judge("fresh", work, "rm -f answer.txt; echo ok > answer.txt", level=level, setup=("true",))
    live, used = sandboxes(outcome)
    assert outcome.reward in {0.0, 1.0}, outcome.reward_failure
    look = {"command": 'ls -A ~; [ -z "$BASH_ENV$LD_PRELOAD" ] && [ "$(type -t cat)" = file ]'}
    again = await judge("looks", work, options=look, level=level, precautions=Precautions(access="fresh", artifacts=()))
    assert again.reward == 1.0, again.reward_detail
    assert not [pid for sandbox in (live, *used) for pid in processes_of(sandbox)]


@pytest.mark.parametrize(
    ("declared", "task", "run", "used"),
    [
        ("looks", None, "live", "live"),
        ("looks", "fresh", "live", "fresh"),
        ("looks", None, "fresh", "fresh"),
        ("fresh", "live", "live", "fresh"),
        ("fresh", "read_only", "read_only", "fresh"),
    ],
)
async def test_a_task_or_a_run_can_raise_the_access_and_never_lower_it(judge, declared, task, run, used):
    outcome = await judge(
        declared,
        options={"command": "true"} if declared == "looks" else {},
        runtime={"verifier_access": run},
        precautions=Precautions(access=task, artifacts=("answer.txt",)),
    )
    assert outcome.reward_status is RewardStatus.OK, outcome.reward_failure
    assert outcome.provenance["verification"]["access"] == used


async def test_a_fresh_sandbox_of_which_nobody_said_what_it_gets_is_no_judgement(judge):
    outcome = await judge("looks", options={"command": "true"}, runtime={"verifier_access": "fresh"})
    assert outcome.reward is None
    assert '"artifacts"' in outcome.reward_failure.message


async def test_a_verifier_that_another_one_asks_gets_no_less_than_it_declares_and_no_less_than_the_other(judge):
    outcome = await judge("asks", "echo ok > answer.txt; touch x", options={"name": "fresh"})
    assert (outcome.reward, outcome.provenance["verification"]["access"]) == (1.0, "live")
    assert outcome.provenance["verification"]["places"][0]["artifacts"] == {"answer.txt": "copied"}
    inner = {"name": "looks", "options": {"command": "[ ! -e x ] && [ -e answer.txt ]"}}
    raised = Precautions(access="fresh", artifacts=("answer.txt",))
    outcome = await judge("asks", "echo ok > answer.txt; touch x", options=inner, precautions=raised)
    assert outcome.reward == 1.0
    assert len(outcome.provenance["verification"]["places"]) == 1


@pytest.mark.parametrize("how", ["timeout", "error", "cancelled"])
async def test_the_sandboxes_of_the_verification_are_closed_however_it_ends(judge, how, tmp_path, monkeypatch):
    seen = []
    begun = tmp_path / "begun"
    options = {"command": f"sleep 300 & touch {begun}", "hang": how != "error"}
    setup = ("[ ! -e answer.txt ]",)
    if how == "error":
        setup = (f"[ ! -e {tmp_path}/once ] && touch {tmp_path}/once",)
    original = Runtime.open_sandbox

    def open_and_note(self, spec):
        opened = original(self, spec)
        seen.append(opened)
        return opened

    monkeypatch.setattr(Runtime, "open_sandbox", open_and_note)

    def judge_within(seconds=600.0):
        seen.clear()
        begun.unlink(missing_ok=True)
        raised = Precautions(access="fresh", artifacts=())
        limits = {"verifier_timeout": seconds}
        return judge("looks", options=options, runtime=limits, setup=setup, precautions=raised)

    async def run_until(seconds):
        outcome = await judge_within(seconds)
        TooSoon.unless(begun.exists(), "the verifier's command had not begun")
        return outcome

    if how == "cancelled":
        task = asyncio.create_task(judge_within())
        try:
            assert await eventually(lambda: len(seen) == 2)
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled()
    else:
        outcome = await (with_more_time(run_until) if how == "timeout" else judge_within())
        assert outcome.reward is None
        live, used = sandboxes(outcome)
        assert not [pid for sandbox in (live, *used) for pid in processes_of(sandbox)]
    # After a timeout an untouched sandbox is judged as well, in a place of its own.
    assert len(seen) == (4 if how == "timeout" else 2)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", ["/", "/tmp/made"])
async def test_what_lies_outside_the_workspace_is_no_artifact_where_others_see_it(judge, level, path):
    asked = Precautions(access="fresh", artifacts=(path,))
    outcome = await judge("looks", "true", options={"command": "true"}, level=level, precautions=asked)
    assert outcome.reward is None
    assert f"isolation {level!r} shares" in outcome.reward_failure.message


async def test_a_judge_s_sandbox_that_cannot_be_had_is_no_fault_of_the_rollout(judge, monkeypatch):
    opened, real = [], LocalBackend.open

    async def open_once(backend, spec):
        opened.append(spec)
        if len(opened) > 1:
            raise BackendError("there is no room")
        return await real(backend, spec)

    monkeypatch.setattr(LocalBackend, "open", open_once)
    outcome = await judge("fresh", "echo ok > answer.txt")
    assert (outcome.reward, outcome.suspect, len(opened)) == (None, False, 2)
    assert outcome.reward_failure.type == "JudgeLostError"


async def test_a_sandbox_that_answers_too_late_or_with_nonsense_is_told_from_one_of_ours():
    """Its agent may be the model's: that must be no way out of a score, and no bug of a verifier."""

    async def raises(error: Exception) -> None:
        raise error

    with pytest.raises(WorkspaceError, match=r"more than 0\.01 s"):
        await await_answer(asyncio.Event().wait(), 0.01)
    with pytest.raises(BackendError, match="impossible answer: KeyError"):
        await await_answer(raises(KeyError("streams")), 60)
    for error in (TimeoutError("of a connection"), PermissionError("x"), OSError(errno.EMFILE, "made up")):
        with pytest.raises(WorkspaceError) as raised:
            await await_answer(raises(error), 60)
        assert raised.value.__cause__ is error
    with pytest.raises(VerifierError):
        await await_answer(raises(VerifierError("x")), 60)


@pytest.mark.parametrize("path", ["/", "/srv", "/srv/a b", "a/b"])
def test_a_task_may_name_what_lies_outside_the_workspace(path):
    assert Precautions(artifacts=(path,)).artifacts == (path,)


@pytest.mark.parametrize("path", ["//", "/a/", "/..", "/a/../b", "/a\0b"])
def test_an_absolute_artifact_is_written_plainly(path):
    with pytest.raises(ValueError, match="expected an absolute path"):
        Precautions(artifacts=(path,))


@pytest.mark.parametrize("path", ["", "../up", "a/../b", "a\0b", ".", "a//b", "./a"])
def test_an_artifact_is_a_path_below_the_workspace(path):
    with pytest.raises(ValueError, match="below the workspace"):
        Precautions(artifacts=(path,))
    with pytest.raises(ValueError, match="below the workspace"):
        VerifierSpec(name="v", summary="v", target="m:V", artifacts=(path,))
    with pytest.raises(ValueError, match="below the workspace"):
        VerifierSpec(name="v", summary="v", target="m:V", artifacts=("/etc/passwd",))


def test_an_access_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="live, read_only, fresh"):
        VerifierSpec(name="v", summary="v", target="m:V", access="root")
    with pytest.raises(ValueError, match="live, read_only, fresh"):
        Precautions(access="root")
