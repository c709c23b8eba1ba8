"""Reading tasks from JSONL: the content of a line, and the message for each mistake."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.task import LoadedTasks, Step, Task, TaskFile, TaskProblem
from hermes_core.discovery import Registry, load_tasks
from hermes_core.specs import Ref
from hermes_runner.tasks.jsonl import parse_line


def parse(value: object) -> Task | TaskProblem:
    line = value if isinstance(value, bytes) else json.dumps(value).encode()
    return parse_line(line, source="t.jsonl:1", folder=Path("/nonexistent"))


def complaint(**fields: object) -> str:
    result = parse({"id": "t", "prompt": "p", **fields})
    assert isinstance(result, TaskProblem), result
    assert result.source == "t.jsonl:1"
    return result.message


def test_a_whole_task_is_read(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "blob").write_bytes(b"\x00\xff")
    record = {
        "id": "t1",
        "prompt": "Do it.",
        "files": {
            "a.txt": "text",
            "bin/run": {"text": "#!/bin/sh\n", "mode": "0755"},
            "b64": {"base64": "AAE="},
            "copied": {"source": "files/blob"},
        },
        "setup": ["true"],
        "verifier": {"name": "exit_code", "options": {"command": "true"}},
        "solution": ["echo", {"tool": "write_file", "arguments": {"path": "x", "content": "y"}}],
        "answer": "done",
        "cheats": [{"name": "c", "kind": "tampering", "steps": ["rm x"], "answer": "ha"}],
        "enabled_toolsets": ["terminal"],
        "sandbox": {"network": "none", "allow_hosts": ["a"], "memory_mb": 64},
        "limits": {"max_agent_turns": 3, "time_limit": 5},
        "split": "eval",
        "metadata": {"category": "x"},
    }
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(record) + "\n\n", encoding="utf-8")
    loaded = load_tasks(path, registry)
    assert loaded.problems == ()
    (task,) = loaded.tasks
    assert task.messages == ({"role": "user", "content": "Do it."},)
    assert task.files == (
        TaskFile(path="a.txt", data=b"text"),
        TaskFile(path="bin/run", data=b"#!/bin/sh\n", mode=0o755),
        TaskFile(path="b64", data=b"\x00\x01"),
        TaskFile(path="copied", data=b"\x00\xff"),
    )
    assert task.verifier == Ref(kind="verifier", name="exit_code", options={"command": "true"})
    assert task.solution == (
        Step(tool="terminal", arguments={"command": "echo"}),
        Step(tool="write_file", arguments={"path": "x", "content": "y"}),
    )
    assert task.cheats[0].steps == (Step(tool="terminal", arguments={"command": "rm x"}),)
    assert (task.cheats[0].kind, task.cheats[0].answer) == ("tampering", "ha")
    assert task.sandbox == {"network": "none", "allow_hosts": ("a",), "memory_mb": 64}
    assert task.limits == {"max_agent_turns": 3, "time_limit": 5}
    assert (task.split, task.source) == ("eval", f"{path}:1")


def test_a_broken_line_stops_no_other(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id":"a","prompt":"x"}\n{"id":\n\xff\xfe\n[1]\n{"id":"b","prompt":"x"}')
    loaded = load_tasks(path, registry)
    assert [task.id for task in loaded.tasks] == ["a", "b"]
    assert [problem.source for problem in loaded.problems] == [f"{path}:{n}" for n in (2, 3, 4)]
    assert "not JSON" in loaded.problems[0].message
    assert "UTF-8" in loaded.problems[1].message
    assert loaded.problems[2].message == "expected a JSON object, got [1]"


def test_a_second_task_with_the_same_id_is_a_problem(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id":"a","prompt":"x"}\n{"id":"a","prompt":"y"}\n', encoding="utf-8")
    loaded = load_tasks(path, registry)
    assert [task.messages[0]["content"] for task in loaded.tasks] == ["x"]
    assert loaded.problems[0].task_id == "a"
    assert f"{path}:1" in loaded.problems[0].message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verifer": "x"}, "unknown key 'verifer'; did you mean 'verifier'?"),
        ({"files": {"a": {"txt": "x"}}}, "files.a: unknown key 'txt'; did you mean 'text'?"),
        ({"cheats": [{"name": "c", "step": []}]}, "unknown key 'step'; did you mean 'steps'?"),
        ({"cheats": [{"name": "c", "kind": "bribe"}]}, "'cheats.0.kind': expected 'wrong_output', "),
        ({"cheats": [{"name": "c"}, {"name": "c"}]}, "two cheats are called 'c'"),
        ({"verifier": {"nam": "x"}}, "'verifier.name' is missing"),
        ({"messages": [{"role": "user", "content": "x"}]}, "exactly one of 'prompt' and a non-empty 'messages'"),
        ({"prompt": None}, "got neither"),
        ({"prompt": 5}, "'prompt': expected a valid string, got 5"),
        ({"prompt": None, "messages": [{"role": "robot", "content": ""}]}, "message 0 needs 'role'"),
        ({"files": {"../x": "1"}}, "without '..', got '../x'"),
        ({"files": {"a": {"text": "x", "base64": ""}}}, "exactly one of 'text', 'base64' and 'source'"),
        ({"files": {"a": {"text": "x", "mode": "rwx"}}}, "'files.a.mode'"),
        ({"files": {"a": {"base64": "???"}}}, "file 'a': 'base64' is not valid base64"),
        ({"files": {"a": {"source": "../../etc/passwd"}}}, "leads out of"),
        ({"files": {"a": {"source": "none"}}}, "source 'none' cannot be read"),
        ({"sandbox": {"memry": 1}}, "unknown key 'memry'"),
        ({"sandbox": {"memory_mb": "lots"}}, "got 'lots'"),
        ({"sandbox": {"network": "some"}}, "network"),
        ({"limits": {"max_agent_turn": 1}}, "did you mean 'max_agent_turns'?"),
        ({"limits": {"time_limit": -1}}, "time_limit: expected a number above 0, got -1"),
        ({"solution": "echo"}, "'solution': expected a valid list, got \"echo\""),
        ({"solution": ["a", 3]}, "'solution.1'"),
        ({"id": ""}, "'id'"),
        ({"id": "a\nb"}, "printable"),
    ],
)
def test_a_mistake_is_named_with_the_expected_and_the_actual_value(fields: dict[str, object], said: str) -> None:
    assert said in complaint(**fields)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": "a", "prompt": "x", "id": "b"}', 'the key "id" occurs twice'),
        (b'{"id": "a", "prompt": "x", "metadata": {"v": NaN}}', "NaN is not a JSON value"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"id": "a", "prompt": "\\ud800"}', "not text"),
        (b'{"id": "a", "prompt": "x", "metadata": {"n": ' + b"9" * 5000 + b"}}", "not JSON"),
        (b"{", "a whole task on each line"),
    ],
)
def test_a_line_that_is_not_clean_json_is_a_problem(line: bytes, said: str) -> None:
    result = parse(line)
    assert isinstance(result, TaskProblem)
    assert said in result.message


def test_a_symlink_does_not_lead_a_source_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    line = b'{"id": "a", "prompt": "x", "files": {"f": {"source": "link"}}}'
    result = parse_line(line, source="s", folder=folder)
    assert isinstance(result, TaskProblem)
    assert "leads out of" in result.message


def test_a_path_that_does_not_exist_names_a_near_one(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").touch()
    with pytest.raises(ConfigError, match=r"did you mean .*tasks\.jsonl"):
        load_tasks(tmp_path / "task.jsonl", registry)


def test_an_empty_file_is_an_error_that_shows_a_task(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n \n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r'holds no task\n.*"prompt"'):
        load_tasks(tmp_path / "tasks.jsonl", registry)


def test_a_file_without_a_valid_task_is_an_error_that_lists_the_problems(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("nope\n" * 7, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"(?s)tasks\.jsonl:1: not JSON.*and 2 more"):
        load_tasks(tmp_path / "tasks.jsonl", registry)


def test_an_unknown_suffix_is_an_error_that_names_the_known_ones(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "tasks.csv").touch()
    with pytest.raises(ConfigError, match=r"expected .*\.jsonl \(jsonl\).*, got \.csv"):
        load_tasks(tmp_path / "tasks.csv", registry)


def test_a_named_source_reads_any_ending(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text('{"id":"a","prompt":"x"}', encoding="utf-8")
    assert isinstance(load_tasks(tmp_path / "tasks.txt", registry, source="jsonl"), LoadedTasks)


KEYS = st.sampled_from(
    [
        "id",
        "prompt",
        "messages",
        "files",
        "setup",
        "verifier",
        "solution",
        "cheats",
        "sandbox",
        "limits",
        "metadata",
        "x",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8) | KEYS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(KEYS, VALUES, max_size=6))
def test_whatever_json_a_line_holds_it_is_a_task_or_a_problem(value: dict[str, object]) -> None:
    result = parse_line(json.dumps(value).encode(), source="f:1", folder=Path("/nonexistent"))
    assert isinstance(result, Task | TaskProblem)
    if isinstance(result, TaskProblem):
        assert result.message


@settings(max_examples=100, deadline=None)
@given(line=st.binary(max_size=60))
def test_whatever_bytes_a_line_holds_it_is_a_task_or_a_problem(line: bytes) -> None:
    assert isinstance(parse_line(line, source="f:1", folder=Path("/nonexistent")), Task | TaskProblem)


@pytest.mark.parametrize("env", [{"A": ["s3cret"]}, "A=s3cret", ["A=s3cret"]])
def test_no_problem_of_a_task_quotes_its_environment_variables(env: object) -> None:
    said = complaint(sandbox={"env": env})
    assert ("env" in said, "s3cret" in said) == (True, False)
