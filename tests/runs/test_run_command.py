"""`hermes-core run` end to end: the files it writes, and a clear message for every bad input."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import termios

import pytest
import yaml

RUN_FIELDS = {
    "rollout_id",
    "task_id",
    "group_id",
    "messages",
    "turns",
    "reward",
    "reward_parts",
    "reward_status",
    "stop_reason",
    "tool_errors",
    "timings",
    "provenance",
}


def fails(result, *words, code=2):
    """Check a failure: 2 when the user must change something, 1 when somebody else is to blame."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    return result


def test_a_task_file_becomes_scored_rollouts_a_summary_and_a_report(hermes, tasks, small_task, rollouts, tmp_path):
    path = tasks(small_task("one"), small_task("two"))
    result = hermes("run", path, "--model", "oracle", "--mistake-rate", "0", "--group-size", "2", "--out", "out")
    assert result.returncode == 0, result.stderr
    lines = rollouts()
    assert len(lines) == 4
    assert all(set(line) >= RUN_FIELDS for line in lines)
    assert {line["reward"] for line in lines} == {1.0}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rollouts"]["total"] == 4
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    assert "report.html" in result.stdout


def test_doing_nothing_scores_nothing(hermes, tasks, small_task, rollouts):
    assert hermes("run", tasks(small_task("one")), "--model", "nop", "--out", "out").returncode == 0
    assert [line["reward"] for line in rollouts()] == [0.0]


def test_the_same_seed_gives_the_same_mistakes(hermes, tasks, small_task, rollouts):
    path = tasks(*[small_task(f"t{i}") for i in range(4)])
    for out in ("a", "b"):
        hermes("run", path, "--mistake-rate", "0.7", "--group-size", "3", "--seed", "5", "--out", out)
    first, second = (sorted((r["task_id"], r["index"], r["reward"]) for r in rollouts(out)) for out in ("a", "b"))
    assert first == second
    assert len({reward for _, _, reward in first}) > 1


def test_the_printed_config_runs_unchanged(hermes, tasks, small_task, rollouts, tmp_path):
    printed = hermes("run", tasks(small_task("one")), "--group-size", "2", "--out", "out", "--print-config")
    assert yaml.safe_load(printed.stdout)["group_size"] == 2
    (tmp_path / "run.yaml").write_text(printed.stdout)
    assert hermes("run", "--config", "run.yaml").returncode == 0
    assert len(rollouts()) == 2


def test_flags_win_over_the_config(hermes, tasks, small_task, tmp_path):
    (tmp_path / "run.yaml").write_text(f"tasks: {tasks(small_task('one'))}\ngroup_size: 3\n")
    printed = hermes("run", "--config", "run.yaml", "--group-size", "5", "--print-config")
    assert yaml.safe_load(printed.stdout)["group_size"] == 5


def test_a_malformed_line_does_not_stop_the_other_tasks(hermes, tasks, small_task, rollouts):
    path = tasks(small_task("one"), '{"id": "broken", ', small_task("two", promt="x"))
    result = fails(hermes("run", path, "--out", "out"), "tasks.jsonl:2", "tasks.jsonl:3", "prompt", code=1)
    assert [line["task_id"] for line in rollouts()] == ["one"]
    assert "one" in result.stdout


def test_an_unknown_verifier_stops_its_task_only(hermes, tasks, small_task, rollouts):
    path = tasks(small_task("one"), small_task("two", verifier="file_contant"))
    fails(hermes("run", path, "--out", "out"), "file_contant", "file_content", code=1)
    assert [line["task_id"] for line in rollouts()] == ["one"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--terminal-backend", "lokal"), ("lokal", "local")),
        (("-p", "no:modal", "--terminal-backend", "modal"), ("modal", "hermes-backend-modal")),
        (("--parser", "hermez"), ("hermez", "hermes")),
        (("--enabled-toolsets", "terminl"), ("terminl", "terminal")),
        (("--distribution", "sciense"), ("sciense", "science")),
        (("--model", "gpt-4"), ("gpt-4", "--model-name")),
        (("--split", "test"), ("test", "train")),
        (("--config", "nothing.yaml"), ("nothing.yaml", "--config")),
        (("--extra-body", "[1]"), ("--extra-body", "JSON object")),
        (("--api-key-env", "NO_SUCH_VARIABLE"), ("NO_SUCH_VARIABLE", "export")),
        (("--model", "http://127.0.0.1:9/v1", "--model-name", "m", "--model-retries", "0"), ("127.0.0.1:9",)),
        (("-p", "no:nothing-like-it"), ("nothing-like-it",)),
        (("-p", "no_such_module_here"), ("no_such_module_here",)),
    ],
)
def test_each_bad_input_has_one_clear_message(hermes, tasks, small_task, arguments, words):
    plugin = arguments if arguments[0] == "-p" else ()
    rest = () if plugin else arguments
    result = hermes(*plugin, "run", tasks(small_task("one")), "--out", "out", *rest)
    fails(result, *words, code=1 if "127.0.0.1:9" in words else 2)


@pytest.mark.parametrize(("flag", "value"), [("--isolation", "gvisor"), ("--network", "none")])
def test_a_sandbox_that_the_backend_cannot_enforce_is_refused(hermes, tasks, small_task, flag, value):
    result = fails(hermes("run", tasks(small_task("one")), "--out", "out", flag, value), "local", value, code=1)
    assert "bwrap" in result.stderr


@pytest.mark.parametrize(
    ("artifacts", "words"),
    [
        (None, ("nothing of the rollout", "artifacts")),
        (["/"], ("'none'", "container")),
        (["/x"], ("'/x'", "container")),
    ],
)
def test_a_task_that_could_not_be_judged_is_not_begun(hermes, tasks, small_task, rollouts, artifacts, words):
    verifier = {"name": "exit_code", "options": {"command": "true"}}
    bad = small_task("bad") | {"verifier": verifier | {"artifacts": artifacts}}
    good = small_task("good") | {"verifier": verifier | {"artifacts": ["out"]}}
    fails(hermes("run", tasks(bad), "--out", "none", "--verifier-access", "fresh"), *words)
    fails(hermes("run", tasks(bad, good), "--out", "out", "--verifier-access", "fresh"), *words, code=1)
    assert [line["task_id"] for line in rollouts()] == ["good"]


def test_an_unknown_config_key_names_the_nearest(hermes, tasks, small_task, tmp_path):
    (tmp_path / "run.yaml").write_text(f"tasks: {tasks(small_task('one'))}\ngroupsize: 3\n")
    fails(hermes("run", "--config", "run.yaml"), "groupsize", "group_size")


def test_a_missing_task_file_says_so(hermes):
    fails(hermes("run", "nothing.jsonl"), "nothing.jsonl")


def test_no_tasks_named_says_what_to_type(hermes):
    fails(hermes("run"), "hermes-core run TASKS")


def test_an_output_folder_that_cannot_be_written_says_so(hermes, tasks, small_task, tmp_path):
    (tmp_path / "file").write_text("")
    fails(hermes("run", tasks(small_task("one")), "--out", "file/out"), "file/out", "--out")


def test_a_different_run_in_the_same_folder_is_refused(hermes, tasks, small_task):
    path = tasks(small_task("one"))
    assert hermes("run", path, "--out", "out", "--seed", "1").returncode == 0
    fails(hermes("run", path, "--out", "out", "--seed", "2"), "seed", "--out")


def test_a_start_that_failed_does_not_claim_the_folder(hermes, tasks, small_task, rollouts):
    path = tasks(small_task("one"))
    fails(hermes("run", path, "--out", "out", "-p", "no:modal", "--terminal-backend", "modal"), "modal")
    fails(hermes("run", path, "--out", "out", "--network", "none"), "network", code=1)
    assert hermes("run", path, "--out", "out", "--mistake-rate", "0").returncode == 0
    assert len(rollouts()) == 1


@pytest.mark.parametrize("text", ["", "rubbish", "{}"])
def test_a_damaged_manifest_is_named(hermes, tasks, small_task, tmp_path, text):
    path = tasks(small_task("one"))
    assert hermes("run", path, "--out", "out", "--mistake-rate", "0").returncode == 0
    (tmp_path / "out" / "run.json").write_text(text)
    fails(hermes("run", path, "--out", "out", "--mistake-rate", "0"), "run.json", "--out")


def test_trouble_in_a_listener_is_told_and_stops_nothing(hermes, tasks, small_task, rollouts, tmp_path):
    result = hermes("-p", "troubled", "run", tasks(small_task("one")), "--out", "out", "--mistake-rate", "0")
    assert result.returncode == 0, result.stderr
    problems = json.loads((tmp_path / "out" / "summary.json").read_text())["run"]["event_problems"]
    assert [(p["hook"], p["kind"], p["count"]) for p in problems] == [("hermes_tool_called", "raised", 2)]
    assert any(name.startswith("local:troubled") for name in rollouts()[0]["provenance"]["loaded_plugins"])


def test_a_backend_that_raises_is_to_blame_itself(hermes, tasks, small_task, rollouts):
    command = ("-p", "troubled", "run", tasks(small_task("one")), "--out", "out", "--max-attempts", "1")
    assert hermes(*command, "--terminal-backend", "broken_backend").returncode == 1
    outcome = rollouts()[0]
    assert (outcome["stop_reason"], outcome["failure"]["blame"]) == ("tool_backend_error", "backend")
    assert "broken_backend" in outcome["failure"]["message"]


def test_a_draw_of_tools_that_are_not_installed_stops_its_task_only(hermes, tasks, small_task, rollouts):
    path = tasks(*[small_task(f"t{i}") for i in range(12)])
    command = ("run", path, "--out", "out", "--distribution", "development", "--mistake-rate", "0", "--seed", "3")
    result = hermes(*command)
    drawn = {line["task_id"]: line["provenance"]["toolsets"] for line in rollouts()}
    assert 0 < len(drawn) <= 12
    assert result.returncode == (0 if len(drawn) == 12 else 1)


def test_a_config_that_is_not_utf8_is_refused(hermes, tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"tasks: \xff\xfe")
    fails(hermes("run", "--config", "run.yaml"), "UTF-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_others_cleans_up_like_ctrl_c(hermes, tasks, small_task, rollouts, number):
    path = tasks(small_task("one"), small_task("two", solution=["sleep 1000"]))
    marker = hermes.folder / "called"
    os.mkfifo(marker)
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    command = ("-p", "tell", "run", path, "--out", "out", "--mistake-rate", "0", "--max-concurrent", "1")
    with hermes.start(*command, env={"HERMES_TEST_TELL": str(marker)}) as process:
        assert select.select([reader], [], [], 60)[0]
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    os.close(reader)
    assert process.returncode == 128 + number
    said = "terminated: 1 of 2 rollouts recorded, 1 in flight ended, no sandbox left; the same command continues"
    assert said in err
    assert [line["task_id"] for line in rollouts()] == ["one"]
    assert "no sandboxes" in hermes("sandboxes", "ps").stdout.lower() or not hermes("sandboxes", "ps").stdout.strip()


def _take_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_terminal_that_is_closed_cleans_up_like_ctrl_c(hermes, tasks, small_task, rollouts):
    """Its end is a SIGHUP, and whatever is written to it afterwards an error."""
    path = tasks(small_task("one"), small_task("two", solution=["sleep 1000"]))
    marker = hermes.folder / "called"
    os.mkfifo(marker)
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    command = ("-p", "tell", "run", path, "--out", "out", "--mistake-rate", "0", "--max-concurrent", "1")
    near, far = os.openpty()
    with hermes.start(
        *command,
        env={"HERMES_TEST_TELL": str(marker)},
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:
        os.close(far)
        assert select.select([reader], [], [], 60)[0]
        os.close(near)
        assert process.wait(timeout=60) == 128 + signal.SIGHUP
    os.close(reader)
    assert [line["task_id"] for line in rollouts()] == ["one"]
    assert json.loads(hermes("sandboxes", "ps", "--json").stdout)["sandboxes"] == []


def test_nohup_runs_go_on_without_their_terminal(hermes, tasks, small_task, rollouts):
    marker = hermes.folder / "called"
    os.mkfifo(marker)
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    path = tasks(small_task("one", solution=[f"echo here >{marker}; read line <{marker}.on", "echo 1 >a"]))
    way = hermes.folder / "called.on"
    os.mkfifo(way)
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731 - what nohup does
    with hermes.start("run", path, "--mistake-rate", "0", "--out", "out", preexec_fn=ignore) as process:
        assert select.select([reader], [], [], 60)[0]
        process.send_signal(signal.SIGHUP)
        way.write_text("go on\n")
        process.communicate(timeout=60)
    os.close(reader)
    assert process.returncode == 0
    assert len(rollouts()) == 1


def test_output_without_characters_for_it_is_escaped(hermes, tasks, small_task):
    """LC_ALL=C, as in many containers, ended commands whose work was done."""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    path = tasks(small_task("задача", prompt="é"))
    for command in (
        ["tasks", "list", path],
        ["tasks", "check", path],
        ["run", "--help"],
        ["--help"],
        ["plugins", "list"],
    ):
        result = hermes(*command, env=plain)
        assert "Traceback" not in result.stderr, command
        assert result.returncode == 0, result.stderr
    assert "\\u0437" in hermes("tasks", "list", path, env=plain).stdout
    assert json.loads(hermes("tasks", "list", path, "--json", env=plain).stdout)["tasks"][0]["id"] == "задача"


def test_a_run_begins_by_removing_what_killed_ones_left(hermes, tasks, small_task):
    """A defect of hermes-agent: leftovers of killed runs piled up."""
    marker = hermes.folder / "called"
    os.mkfifo(marker)
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    path = tasks(small_task("one", solution=[f"echo here >{marker}; sleep 1000"]))
    with hermes.start("run", path, "--mistake-rate", "0", "--out", "killed") as process:
        assert select.select([reader], [], [], 60)[0]
        process.kill()
    os.close(reader)
    assert json.loads(hermes("sandboxes", "ps", "--json").stdout)["sandboxes"][0]["owner"] == "dead"
    quick = tasks(small_task("three"))
    result = hermes("run", quick, "--mistake-rate", "0", "--out", "next")
    assert result.returncode == 0
    assert result.stderr.splitlines()[0] == "sandboxes of processes that have died: 1 removed"
    assert json.loads(hermes("sandboxes", "ps", "--json").stdout)["sandboxes"] == []


def test_a_full_disk_stops_the_run_and_the_same_command_continues(hermes, tasks, small_task, rollouts, tmp_path):
    path = tasks(*[small_task(f"t{i}") for i in range(6)])
    command = ("run", path, "--out", "out", "--max-concurrent", "1", "--mistake-rate", "0")

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))

    with hermes.start(*command, preexec_fn=small_files) as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 2, err
    assert "run the same command again to continue" in err
    done = {line["task_id"] for line in rollouts()}
    assert 0 < len(done) < 6
    assert hermes(*command).returncode == 0
    assert sorted(line["task_id"] for line in rollouts()) == [f"t{i}" for i in range(6)]


def test_nothing_of_the_callers_environment_reaches_the_rollouts(hermes, tasks, small_task, rollouts):
    path = tasks(small_task("one", solution=["env > answer.txt; cat answer.txt /proc/self/environ"]))
    hermes("run", path, "--mistake-rate", "0", "--out", "out", env={"MY_API_KEY": "sekrit-value"})
    assert "sekrit-value" not in json.dumps(rollouts())


def test_interrupting_a_run_cleans_up_and_the_same_command_continues(hermes, tasks, small_task, rollouts):
    path = tasks(small_task("one"), small_task("two", solution=["sleep 1000", "echo two > answer.txt"]))
    command = ("-p", "tell", "run", path, "--out", "out", "--mistake-rate", "0", "--max-concurrent", "1")
    marker = hermes.folder / "called"
    os.mkfifo(marker)
    reader = os.open(marker, os.O_RDONLY | os.O_NONBLOCK)
    with hermes.start(*command, env={"HERMES_TEST_TELL": str(marker)}) as process:
        assert select.select([reader], [], [], 60)[0]  # the second rollout has begun
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    os.close(reader)
    assert process.returncode == 130
    said = "interrupted: 1 of 2 rollouts recorded, 1 in flight ended, no sandbox left; the same command continues"
    assert err.splitlines()[-1] == said
    assert [line["task_id"] for line in rollouts()] == ["one"]
