"""The verifier `script`: its three ways to report a score, and attempts to forge one."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError

REPORT = 'read -r nonce\necho "$nonce first 1"\nbash model.sh\n[ -e made ] && echo "$nonce second 0.5"\n'


async def test_the_exit_code_is_the_default(judge_commands):
    options = {"script": "test -e made"}
    assert (await judge_commands("script", options, "touch made")).reward == 1.0
    assert (await judge_commands("script", options)).reward == 0.0


async def test_a_report_gives_parts_and_their_mean(judge_commands):
    outcome = await judge_commands("script", {"script": REPORT, "reward": "report"}, "touch made model.sh")
    assert outcome.reward == 0.75
    assert outcome.reward_parts == {"first": 1.0, "second": 0.5}


async def test_a_whole_in_a_report_wins_over_the_mean(judge_commands):
    script = "import sys\nn = input()\nprint(n, 'a', 1)\nprint(n, 0.25)\n"
    outcome = await judge_commands("script", {"script": script, "interpreter": "python3", "reward": "report"})
    assert (outcome.reward, outcome.reward_parts) == (0.25, {"a": 1.0})


@pytest.mark.parametrize(
    "model",
    [
        "echo second 1; echo 0 second 1; echo second 1 > /proc/$PPID/fd/1",
        'read -r x; echo "$x second 1"; env | grep -i nonce',
        "kill -9 $PPID",
        "exec 1>&-; touch reward.txt",
    ],
)
async def test_a_program_under_test_cannot_report(judge_commands, model):
    outcome = await judge_commands(
        "script", {"script": REPORT, "reward": "report"}, f"cat > model.sh <<'EOF'\n{model}\nEOF"
    )
    assert outcome.reward_parts == {"first": 1.0}


async def test_a_result_file_cannot_be_guessed(judge_commands):
    options = {"script": '[ -e made ] && echo 0.5 > "$1" || echo 0 > "$1"', "reward": "file"}
    assert (await judge_commands("script", options, "touch made")).reward == 0.5
    assert (await judge_commands("script", options, "echo 1 > reward.txt; echo 1 > '$1'")).reward == 0.0


async def test_fixed_reward_files_are_emptied_beforehand(judge_commands, tmp_path):
    """As in hermes-agent: the tests are uploaded after the rollout and their reward file is read."""
    tests = tmp_path / "local tests"
    (tests / "sub").mkdir(parents=True)
    (tests / "test.sh").write_text('cat "$(dirname "$0")/sub/wanted" && [ -e out ] && echo 1 > "$LOGS/v/reward.txt"\n')
    (tests / "sub" / "wanted").write_bytes(b"\x00\xff")
    logs = tmp_path / "logs"
    remote = tmp_path / "uploaded"
    options = {
        "command": f"bash {remote}/test.sh",
        "upload": {str(remote): str(tests)},
        "reward": "file",
        "reward_files": [f"{logs}/v/reward.json", f"{logs}/v/reward.txt"],
        "env": {"LOGS": str(logs)},
        "inherit_env": True,
    }
    forged = f"mkdir -p {logs}/v {remote} && echo 1 > {logs}/v/reward.txt && echo 'exit 0' > {remote}/test.sh"
    cheated = await judge_commands("script", options, forged)
    assert (cheated.reward, cheated.reward_status) == (None, "error")
    assert "wrote no reward" in cheated.reward_failure.message
    assert (await judge_commands("script", {**options, "on_silence": "zero"}, forged)).reward == 0.0
    assert (await judge_commands("script", options, forged, "touch out")).reward == 1.0


@pytest.mark.parametrize(
    ("text", "reward"),
    [('{"reward": 0.5, "speed": 1}', 0.5), ('{"accuracy": 0.25}', 0.25), ("1e-1\n", 0.1)],
)
async def test_a_result_may_be_a_number_or_named_rewards(judge_commands, text, reward):
    outcome = await judge_commands("script", {"script": f"echo '{text}' > \"$1\"", "reward": "file"})
    assert outcome.reward == reward


@pytest.mark.parametrize("text", ["nan", "inf", "yes", '{"a": 1, "b": 1}', '{"reward": "1x"}', "{", "", "7"])
async def test_a_result_that_is_no_score_is_an_error(judge_commands, text):
    outcome = await judge_commands("script", {"script": f"echo '{text}' > \"$1\"", "reward": "file"})
    assert (outcome.reward, outcome.reward_status) == (None, "error")


async def test_a_script_that_hangs_is_worth_what_the_options_say(judge_commands):
    options = {"script": "sleep 60", "timeout": 0.3}
    assert (await judge_commands("script", options)).reward == 0.0
    assert (await judge_commands("script", {**options, "on_timeout": "error"})).reward_status == "error"


async def test_files_lie_beside_the_script_and_never_in_the_workspace(judge_commands):
    options = {"script": 'cmp out "$(dirname "$0")/wanted" && [ ! -e wanted ]', "files": {"wanted": "x\n"}}
    assert (await judge_commands("script", options, "echo x > out")).reward == 1.0


async def test_the_private_directory_is_gone_afterwards(judge_commands, tmp_path):
    note = tmp_path / "where"
    await judge_commands(
        "script", {"script": f'dirname "$0" > {note}; stat -c %a "$(dirname "$(dirname "$0")")" >> {note}'}
    )
    folder, mode = note.read_text().split()
    assert mode == "700"
    assert not (tmp_path / folder).exists()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"script": "x", "command": "y"},
        {"script": "x", "reward_files": ["/a"]},
        {"script": "x", "reward": "file", "reward_files": ["a"]},
        {"script": "x", "upload": {"tests": "/x"}},
    ],
)
def test_options_that_do_not_fit_together_are_refused(registry, options):
    with pytest.raises(ConfigError):
        registry.create("verifier", "script", options)


async def test_tests_that_a_rollout_changes_on_this_machine_are_never_run(judge_commands, tmp_path):
    (tmp_path / "test.sh").write_text("exit 1\n")
    place = f"{tmp_path}.uploaded"  # the test's own: the upload removes what is there
    options = {"command": f"bash {place}/test.sh", "upload": {place: str(tmp_path)}}
    assert (await judge_commands("script", options)).reward == 0.0
    outcome = await judge_commands("script", options, f"echo exit 0 > {tmp_path}/test.sh")
    assert (outcome.reward, outcome.reward_status) == (None, "error")
    assert "test.sh" in outcome.reward_failure.message
    nested = {"parts": [{"name": "script", "options": options}]}
    assert (await judge_commands("weighted", nested, f"echo exit 1 > {tmp_path}/test.sh")).reward is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("script", {"script": "bash check.sh"}),
        ("exit_code", {"command": "bash check.sh"}),
        (
            "gated",
            {"gates": [{"name": "exit_code", "options": {"command": "bash check.sh", "protected": ["check.sh"]}}]},
        ),
    ],
)
async def test_a_file_of_the_task_that_judges_is_protected(judge_commands, name, options):
    if name != "gated":
        options = {**options, "protected": ["check.sh"]}
    given = {"check.sh": "[ -e made ]\n"}
    assert (await judge_commands(name, options, "touch made", files=given)).reward == 1.0
    outcome = await judge_commands(name, options, "echo true > check.sh", files=given)
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")
    assert "check.sh" in outcome.reward_detail


async def test_what_a_judging_script_starts_cannot_read_its_nonce_again(judge_commands):
    forger = (
        "import os\n"
        "for fd in (0, 3, 63):\n"
        "    for path in (f'/proc/self/fd/{fd}', f'/proc/{os.getppid()}/fd/{fd}'):\n"
        "        try:\n"
        "            nonce = open(path, 'rb', buffering=0)\n"
        "            nonce.seek(0)\n"
        "            print(nonce.read(100).decode().strip(), 'first 1', flush=True)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    script = 'read -r nonce\necho "$nonce first 0"\npython3 model.py < /dev/null\npython3 model.py\n'
    outcome = await judge_commands("script", {"script": script, "reward": "report"}, files={"model.py": forger})
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")
