"""`exit_code` and `file_content`, judged through real rollouts."""

from __future__ import annotations

import pytest

from hermes_core.contracts.errors import ConfigError


async def test_exit_code_scores_the_weighted_share(judge_commands):
    checks = [
        {"command": "test -f a", "weight": 3},
        {"command": "exit 7", "expected": 7, "name": "seven"},
        {"command": "test -f b"},
        {"command": "test -f b"},
    ]
    outcome = await judge_commands("exit_code", {"checks": checks}, "touch a")
    assert outcome.reward == pytest.approx(4 / 6)
    assert outcome.reward_parts == {"test -f a": 1.0, "seven": 1.0, "test -f b": 0.0, "test -f b#2": 0.0}
    assert "test -f b#2" in outcome.reward_detail


async def test_a_command_that_hangs_has_failed(judge_commands):
    outcome = await judge_commands("exit_code", {"command": "sleep 60", "timeout": 0.3})
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")


@pytest.mark.parametrize(
    "attack",
    [
        "test() { return 0; }; export -f test",
        "alias test=true; shopt -s expand_aliases",
        'mkdir bin && ln -s /bin/true bin/grep && export PATH="$PWD/bin:$PATH"',
        'echo "grep() { return 0; }" > evil && cp evil ~/.bashrc && export BASH_ENV="$PWD/evil" ENV="$PWD/evil"',
        "(while :; do echo secret > answer; done) > /dev/null 2>&1 & disown; sleep 0.1; rm -f answer",
    ],
)
async def test_what_the_model_left_in_its_session_does_not_reach_a_check(judge_commands, attack):
    outcome = await judge_commands("exit_code", {"command": "test -f answer && grep -q '^the answer$' answer"}, attack)
    assert outcome.reward == 0.0


async def test_a_repository_cannot_configure_the_verifier_s_git(judge_commands):
    spoil = (
        "git init -q . && git config user.name x && git config user.email x@y.z && git commit -q --allow-empty -m one"
        " && printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/reference-transaction && chmod +x .git/hooks/*"
        " && git config core.fsmonitor 'touch ran; false' && git config --global alias.log '!true'"
    )
    check = 'git status > /dev/null && git branch -q b && [ "$(git log --format=%s)" = one ] && [ ! -e ran ]'
    assert (
        await judge_commands("exit_code", {"command": check}, f"export HOME=$PWD; {spoil}; rm -f ran")
    ).reward == 1.0


async def test_the_workspace_may_be_gone(judge_commands):
    assert (await judge_commands("exit_code", {"command": "true"}, 'rm -rf -- "$PWD"')).reward_status == "ok"


CHECKS = {
    "equals": {"path": "a", "equals": "hello\n"},
    "contains": {"path": "a", "contains": ["hel", "llo"]},
    "not_contains": {"path": "a", "contains": "h", "not_contains": "bye"},
    "regex": {"path": "a", "regex": "^h.llo$"},
    "sha256": {"path": "a", "sha256": "5891B5B522D5DF086D0FF0B110FBD9D21BB4FC7163AF34D08286A2E846F6BE03"},
    "absent": {"path": "nowhere/b", "absent": True},
    "exists": {"path": "a", "exists": True},
    "white space": {"path": "a", "equals": " HELLO ", "ignore_case": True},
}


@pytest.mark.parametrize("name", CHECKS)
async def test_each_condition_on_a_file_can_hold_and_can_fail(judge_commands, name):
    options = {"checks": [CHECKS[name]]}
    assert (await judge_commands("file_content", options, "echo hello > a")).reward == 1.0
    spoil = "mkdir nowhere; echo other bye > a; touch nowhere/b; rm -f a"
    assert (await judge_commands("file_content", options, spoil)).reward == 0.0


async def test_file_checks_give_partial_credit_and_say_what_is_missing(judge_commands):
    checks = [{"path": "a", "equals": "1", "weight": 3}, {"path": "b", "equals": "2"}]
    outcome = await judge_commands("file_content", {"checks": checks}, "echo 1 > a")
    assert outcome.reward == 0.75
    assert outcome.reward_parts == {"a": 1.0, "b": 0.0}
    assert "b does not exist" in outcome.reward_detail


async def test_runs_of_white_space_can_count_as_one(judge_commands):
    checks = [{"path": "a", "equals": "x y", "collapse_whitespace": True}, {"path": "a", "equals": "x y"}]
    assert (await judge_commands("file_content", {"checks": checks}, "printf 'x \\t y\\r\\n' > a")).reward == 0.5


@pytest.mark.parametrize(
    ("trick", "said"),
    [
        ("ln -s /etc/passwd a", "leads out of the workspace"),
        (f"ln -s .. up && mkdir ../side-$$ && ln -s up{'/..' * 30}/etc/passwd a", "leads out of the workspace"),
        ("mkdir a", "is a directory"),
        ("mkfifo a", "is a other"),
        ("truncate -s 1G a", "more than"),
        ("ln -s nothing a", "does not exist"),
    ],
)
async def test_a_path_that_is_no_plain_file_of_the_workspace_fails_its_check(judge_commands, trick, said):
    options = {"checks": [{"path": "a", "regex": "", "name": "read"}, {"path": "a", "absent": True, "name": "absent"}]}
    outcome = await judge_commands("file_content", options, trick)
    assert outcome.reward_parts == {"read": 0.0, "absent": 0.0}
    assert said in outcome.reward_detail


async def test_a_symlink_within_the_workspace_is_followed(judge_commands):
    options = {"checks": [{"path": "a", "equals": "x"}]}
    assert (await judge_commands("file_content", options, "echo x > real && ln -s real a")).reward == 1.0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("exit_code", {}),
        ("exit_code", {"command": "true", "checks": [{"command": "true"}]}),
        ("exit_code", {"comand": "true"}),
        ("file_content", {"checks": []}),
        ("file_content", {"checks": [{"path": "a"}]}),
        ("file_content", {"checks": [{"path": "a", "regex": "("}]}),
        ("file_content", {"checks": [{"path": "a", "absent": True, "equals": ""}]}),
        ("file_content", {"checks": [{"path": "a", "equals": "", "weight": 0}]}),
    ],
)
def test_options_that_make_no_sense_are_refused(registry, name, options):
    with pytest.raises(ConfigError):
        registry.create("verifier", name, options)
