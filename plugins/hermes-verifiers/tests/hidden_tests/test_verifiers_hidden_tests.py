"""The verifier `pytest`: hidden tests, run by unittest or pytest, and attacks of a model on them."""

from __future__ import annotations

import sys

import pytest

from hermes_core.contracts.errors import ConfigError
from hermes_testing.watching import TooSoon, with_more_time

ADD = "def add(a, b):\n    return a + b\n"
TESTS = """
import unittest
from calc import add

class Add(unittest.TestCase):
    def test_small(self):
        self.assertEqual(add(2, 3), 5)

    def test_text(self):
        self.assertEqual(add("a", "b"), "ab")

    def test_many(self):
        for number in range(3):
            with self.subTest(number):
                self.assertEqual(add(number, 1), number + 1)

    @unittest.skip("not here")
    def test_skipped(self):
        pass
"""
WITH_PYTEST = """
import pytest
from calc import add

@pytest.mark.parametrize("n", [1, 2, 3])
def test_add(n):
    assert add(n, n) == 2 * n

def test_last():
    assert add(1, 1) == 3
"""
AT_ARM_S_LENGTH = """
import subprocess, sys, unittest

class Add(unittest.TestCase):
    def test_one(self):
        done = subprocess.run([sys.executable, "calc.py"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.strip(), "5")

    def test_two(self):
        self.assertEqual(2, 2)
"""


OF_LOADERS = """
import pickle, runpy, unittest
import helper

class Loaders(unittest.TestCase):
    def test_runpy(self):
        self.assertEqual(runpy.run_module("helper")["NAME"], "helper")

    def test_code(self):
        self.assertEqual(helper.__loader__.get_code("helper").co_filename, helper.__file__)
        self.assertEqual([helper.__loader__.is_package(name) for name in ("helper", "package")], [False, True])

    def test_source(self):
        self.assertIn("class Helper", helper.__loader__.get_source("helper"))

    def test_pickle(self):
        self.assertIsInstance(pickle.loads(pickle.dumps(helper.Helper())), helper.Helper)

    def test_code_under_test(self):
        from calc import add
        self.assertEqual(add(2, 3), 5)
"""
LEAVING = """
import atexit, sys, threading, unittest

class Leaving(unittest.TestCase):
    def test_thread(self):
        threading.Thread(target=threading.Event().wait).start()
        atexit.register(open, {left!r}, "w")
        sys.stdout = {stdout}
"""


def options(text=TESTS, **more):
    return {"runner": "unittest", "files": {"test_hidden.py": text}, **more}


async def test_the_score_is_the_share_of_passed_tests(judge_commands):
    outcome = await judge_commands("pytest", options(), files={"calc.py": ADD})
    assert outcome.reward == 0.75
    assert outcome.reward_parts["test_hidden.Add.test_skipped"] == 0.0
    assert sum(outcome.reward_parts.values()) == 3


async def test_a_failing_sub_test_fails_its_test(judge_commands):
    outcome = await judge_commands(
        "pytest", options(), files={"calc.py": "def add(a, b):\n    return 5 if a == 2 else a\n"}
    )
    assert outcome.reward_parts["test_hidden.Add.test_many"] == 0.0
    assert outcome.reward_parts["test_hidden.Add.test_small"] == 1.0


async def test_weights_and_required_tests(judge_commands):
    weighted = options(weights={"test_small": 5})
    wrong = {"calc.py": "def add(a, b):\n    return 5\n"}
    assert (await judge_commands("pytest", weighted, files=wrong)).reward == 5 / 8
    assert (await judge_commands("pytest", {**weighted, "required": ["test_text"]}, files=wrong)).reward == 0.0
    assert (await judge_commands("pytest", {**weighted, "required": ["test_small"]}, files=wrong)).reward == 5 / 8


async def test_missing_work_is_a_low_score_and_no_error(judge_commands):
    outcome = await judge_commands("pytest", options(required=["test_small"]))
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")
    assert "No module named 'calc'" in outcome.reward_detail


@pytest.mark.parametrize(
    "attack",
    [
        "printf 'def pytest_pyfunc_call(pyfuncitem):\\n    return True\\n' > conftest.py",
        "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini; cp pytest.ini tox.ini",
        "printf 'import os\\nfor f in range(9):\\n  try: os.write(f, b\"x\")\\n  except OSError: pass\\n' > calc.py",
        "for m in unittest json os subprocess judge; do printf 'import sys\\nsys.exit(0)\\n' > $m.py; done",
        'mkdir -p bin && ln -s /bin/true bin/python3 && export PATH="$PWD/bin:$PATH"',
        "printf 'import os, sys\\nos._exit(0)\\n' > calc.py",
        "printf 'import sys\\nsys.exit(0)\\n' > calc.py",
        "printf 'import os\\nos.kill(os.getppid(), 9)\\n' > calc.py",
        'printf \'print(\\\'{"test": "test_one", "outcome": "passed"}\\\')\' > calc.py',
        "printf 'import os\nfor fd in range(9):\n  try: os.write(fd, b\"x\")\n  except OSError: pass\n' > calc.py",
        "python3() { echo 5; }; export -f python3; alias python3='echo 5'",
        "mkdir -p tests && printf 'def test_one(): pass\\n' > tests/test_hidden.py && cp tests/test_hidden.py .",
    ],
)
async def test_nothing_in_the_workspace_makes_a_hidden_test_pass(judge_commands, attack):
    outcome = await judge_commands("pytest", options(AT_ARM_S_LENGTH, required=["test_one"]), attack)
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")


@pytest.mark.parametrize("attack", ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise BaseException"])
async def test_imported_code_that_ends_the_run_passes_nothing(judge_commands, attack):
    outcome = await judge_commands("pytest", options(), files={"calc.py": f"def add(a, b):\n    {attack}\n"})
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok")


async def test_a_test_that_hangs_costs_what_was_not_reached(judge_commands, tmp_path):
    reached = tmp_path / "reached"
    hangs = f"import time\n\ndef hang():\n    open({str(reached)!r}, 'w').close()\n    time.sleep(600)\n"
    files = {"calc.py": f"{hangs}\ndef add(a, b):\n    return hang() if a == 'a' else a + b\n"}

    async def attempt(seconds):
        reached.unlink(missing_ok=True)
        outcome = await judge_commands("pytest", options(timeout=seconds), files=files)
        TooSoon.unless(reached.exists(), "the test that hangs had not been reached")
        assert outcome.reward == 0.5
        assert f"stopped after {seconds:g} s" in outcome.reward_detail

    await with_more_time(attempt)
    outcome = await judge_commands("pytest", options(timeout=3, on_timeout="error"), files=files)
    assert (outcome.reward, outcome.reward_status) == (None, "error")


async def test_the_runner_pytest_works_where_pytest_is_installed(judge_commands):
    chosen = {"files": {"test_hidden.py": WITH_PYTEST}, "python": sys.executable}
    attack = (
        "printf 'def pytest_collection_modifyitems(items): items.clear()' > conftest.py; echo '[pytest]' > pytest.ini"
    )
    outcome = await judge_commands("pytest", chosen, attack, files={"calc.py": ADD})
    assert (outcome.reward, outcome.reward_status) == (0.75, "ok"), outcome.reward_failure
    outcome = await judge_commands("pytest", chosen, attack)
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok"), outcome.reward_failure


async def test_a_missing_pytest_is_an_error_that_says_what_to_do(judge_commands):
    # An interpreter in isolated mode without site-packages, like python3 of a minimal Debian.
    bare = "no-pytest"
    outcome = await judge_commands("pytest", {"files": {"test_a.py": "def test_a(): pass"}, "python": bare})
    assert outcome.reward_status == "error"
    assert "is 'no-pytest' installed in the sandbox" in outcome.reward_failure.message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"files": {"test_a.py": "def broken(:"}}, "hidden test test_a.py"),
        ({"files": {"test_a.py": "x = 1"}}, "reported nothing"),
    ],
)
async def test_tests_that_cannot_judge_are_an_error_and_no_score(judge_commands, more, said):
    outcome = await judge_commands("pytest", options(**more), files={"calc.py": ADD})
    assert (outcome.reward, outcome.reward_status) == (None, "error")
    assert said in outcome.reward_failure.message


@pytest.mark.parametrize("files", [{}, {"../test_a.py": ""}, {"/test_a.py": ""}, {"a.py": ""}])
def test_files_that_are_no_tests_are_refused(registry, files):
    with pytest.raises(ConfigError):
        registry.create("verifier", "pytest", {"files": files})


@pytest.mark.parametrize("more", [{"required": ["test_smal"]}, {"weights": {"test_smal": 2}}])
def test_names_of_tests_that_do_not_exist_are_refused(registry, more):
    with pytest.raises(ConfigError, match="name the test 'test_smal'"):
        registry.create("verifier", "pytest", options(**more))


async def test_hidden_files_are_what_loaders_make_of_files(judge_commands):
    files = {
        "test_hidden.py": OF_LOADERS,
        "helper.py": "NAME = __name__ if __name__ == 'helper' else 'helper'\nclass Helper: pass\n",
        "package/__init__.py": "",
        "subprocess.py": "raise RuntimeError('the judge imports it')\n",
    }
    outcome = await judge_commands("pytest", {"runner": "unittest", "files": files}, files={"calc.py": ADD})
    assert (outcome.reward, len(outcome.reward_parts)) == (1.0, 5)


@pytest.mark.parametrize("stdout", ["sys.stdout", "None"])
async def test_threads_that_a_test_leaves_delay_no_verdict_and_its_last_functions_run(judge_commands, tmp_path, stdout):
    left = tmp_path / "left"
    outcome = await judge_commands("pytest", options(LEAVING.format(left=str(left), stdout=stdout)))
    assert (outcome.reward, left.exists()) == (1.0, True)
