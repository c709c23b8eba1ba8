from __future__ import annotations

import sys

import pytest

from hermes_testing.servers import held_port
from tiny_rl.processes import ProgramError, Programs
from tiny_rl.summary import table

PYTHON = sys.executable
FOREVER = "import threading; threading.Event().wait()"


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


@pytest.fixture
def port():
    """A port reserved for a program of the test."""
    with held_port() as number:
        yield number


def test_a_program_that_fails_is_told_with_the_end_of_its_log(programs):
    with pytest.raises(ProgramError, match=r"maker exited with 3.*\n.*out of clay"):
        programs.finish("maker", PYTHON, "-c", "print('out of clay'); raise SystemExit(3)")


def test_a_program_ends_with_its_block(programs):
    with programs.running("idle", PYTHON, "-c", FOREVER) as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_waiting_stops_when_a_needed_program_fails(programs):
    with (
        programs.running("idle", PYTHON, "-c", FOREVER) as idle,
        programs.running("needed", PYTHON, "-c", "raise SystemExit(4)") as needed,
        pytest.raises(ProgramError, match="needed exited with 4"),
    ):
        programs.wait("idle", idle, {"needed": needed})


def test_a_server_is_waited_for_until_it_answers(programs, port):
    serve = f"from http.server import *; HTTPServer(('127.0.0.1', {port}), SimpleHTTPRequestHandler).serve_forever()"
    with programs.running("server", PYTHON, "-c", serve) as process:
        programs.until_answers("server", process, f"http://127.0.0.1:{port}/")
        assert process.poll() is None


def test_a_server_that_ends_before_it_answers_is_told(programs, port):
    with (
        programs.running("server", PYTHON, "-c", "raise SystemExit(5)") as process,
        pytest.raises(ProgramError, match="server exited with 5"),
    ):
        programs.until_answers("server", process, f"http://127.0.0.1:{port}/")


def test_modules_of_the_example_are_found_wherever_it_is_started(programs):
    programs.finish("import", PYTHON, "-c", "import tiny_rl.tasks")


def test_results_are_a_table_with_a_line_for_each_seed():
    result = {
        "seed": 1,
        "reward_before": 0.21,
        "reward_after": 0.9,
        "seconds": 150.0,
        "trained_tokens": 20286,
        "largest_difference": 1.1e-5,
        "nothing_lost": True,
    }
    assert table([result]).splitlines()[2:] == ["| 1 | 0.21 | 0.90 | 2.5 | 20,286 | 1.1e-05 | 1.00 |"]
