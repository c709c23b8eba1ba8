"""Hidden tests that import the model's code: it runs in another process, and cannot forge results there."""

from __future__ import annotations

import sys
import textwrap

import pytest

CODE = """
import collections

LIMIT = 7
Point = collections.namedtuple("Point", "x y")

class TooMuch(ValueError):
    pass

class Stack:
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        if len(self.items) == 3:
            raise TooMuch("full")
        self.items.append(item)
        return self
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __getitem__(self, at):
        return self.items[at]
    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items
    def __enter__(self):
        return self
    def __exit__(self, *trouble):
        self.items.clear()
    def __str__(self):
        return "|".join(map(str, self.items))

def same(value):
    return value

def sort(items, *, key=None):
    items.sort(key=key)

def naturals():
    number = 0
    while True:
        yield number
        number += 1

def fail(kind):
    raise kind("why")
"""
USES = """
import decimal, math, unittest, itertools
import pkg.inner as inner
from code_of_model import *
import code_of_model

class Uses(unittest.TestCase):
    def test_values(self):
        plain = (None, True, 0, -1.5, "\\u00e4\\n", b"\\x00")
        for value in (*plain, [1, (2, {3: {4}})], 10**5000, -(2**80), 1j, frozenset("a")):
            back = same(value)
            self.assertEqual(back, value)
            self.assertIs(type(back), type(value))
        self.assertTrue(math.isnan(same(math.nan)))
        self.assertEqual((LIMIT, code_of_model.LIMIT, inner.NAME), (7, 7, "inner"))

    def test_objects(self):
        stack = Stack([1]).push(2)
        self.assertEqual((len(stack), list(stack), stack[0], str(stack), stack.items), (2, [1, 2], 1, "1|2", [1, 2]))
        self.assertEqual(stack, Stack([1, 2]))
        self.assertNotEqual(stack, Stack())
        self.assertIsInstance(stack, Stack)
        self.assertIn(2, stack)
        self.assertNotIn(3, stack)
        self.assertEqual(stack.pop(), 2)
        with stack as same_stack:
            self.assertEqual(len(same_stack), 1)
        self.assertEqual(len(stack), 0)

    def test_exceptions(self):
        with self.assertRaises(TooMuch) as caught:
            Stack([1, 2, 3]).push(4)
        self.assertEqual(str(caught.exception), "full")
        self.assertIsInstance(caught.exception, ValueError)
        for kind in (KeyError, ZeroDivisionError, SystemExit):
            with self.assertRaises(kind):
                fail(kind)

    def test_arguments_changed_in_place(self):
        items = [3, 1, 2]
        self.assertIsNone(sort(items))
        self.assertEqual(items, [1, 2, 3])

    def test_functions_of_the_test(self):
        items = ["aa", "b"]
        sort(items, key=len)
        self.assertEqual(items, ["b", "aa"])
        with self.assertRaises(ZeroDivisionError):
            sort(items, key=lambda item: 1 / 0)

    def test_endless(self):
        self.assertEqual(list(itertools.islice(naturals(), 3)), [0, 1, 2])
"""
FILES = {"code_of_model.py": CODE, "pkg/__init__.py": "", "pkg/inner.py": "from pkg import other\nNAME = other.NAME\n"}
FILES["pkg/other.py"] = "NAME = 'inner'\n"
NAMES = ["values", "objects", "exceptions", "arguments_changed_in_place", "functions_of_the_test", "endless"]


async def test_ordinary_tests_work_on_code_in_another_process(judge_commands):
    outcome = await judge_commands("pytest", {"runner": "unittest", "files": {"test_uses.py": USES}}, files=FILES)
    assert outcome.reward == 1.0, outcome.reward_detail
    assert len(outcome.reward_parts) == len(NAMES)


JUDGE = """
import unittest
import pathlib
from calc import add, positive, name, root

class Calc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(19, 23), 42)
        self.assertTrue(add(19, 23) == 42)
        self.assertFalse(add(19, 23) != 42)

    def test_root(self):
        self.assertAlmostEqual(root(49.0), 7.0)

    def test_name(self):
        self.assertIn("forty", name(42))
        self.assertEqual(sorted(name(42)), sorted("forty-two"))

    def test_positive(self):
        self.assertIs(positive(4), True)
        self.assertIs(positive(-4), False)
"""
WITH_PYTEST = """
import pytest
from calc import add, positive, name, root

@pytest.mark.parametrize("n", [19])
def test_add(n):
    assert add(n, 23) == 42

def test_root():
    assert root(49.0) == pytest.approx(7.0)

def test_name():
    assert "forty" in name(42)

def test_positive():
    assert positive(4) is True
    assert positive(-4) is False
"""
RIGHT = """
def add(a, b): return a + b
def positive(n): return n > 0
def name(n): return "forty-two"
def root(n): return n ** 0.5
"""
ALWAYS = """
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __sub__(self, other): return 0
    __rsub__ = __abs__ = __round__ = __sub__
    def __bool__(self): return True
    def __hash__(self): return 0
    def __iter__(self): return iter("forty-two"[:0])
    def __len__(self): return 1
def add(*a): return Always()
positive = name = root = add
"""
ATTACKS = {
    "equal to everything": ALWAYS,
    "a number that is equal to everything": ALWAYS.replace("class Always:", "class Always(int):"),
    "a text that is equal to everything": ALWAYS.replace("class Always:", "class Always(str):"),
    "unittest patched": """
        import unittest
        for name in dir(unittest.TestCase):
            if name.startswith("assert"):
                setattr(unittest.TestCase, name, lambda *a, **k: None)
        unittest.TestResult.addFailure = unittest.TestResult.addError = lambda self, *a: self.addSuccess(a[0])
        def add(*a): return 0
        positive = name = root = add
        """,
    "the judge's frames": """
        import sys, gc
        def add(*a):
            frame = sys._getframe()
            while frame:
                for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
                    if hasattr(value, "test") and hasattr(value, "_nonce"):
                        value.test("test_hidden.Calc.test_add", "passed")
                frame = frame.f_back
            return 0
        positive = name = root = add
        """,
    "the hidden files": """
        import glob, os, re
        sandbox = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        text = "".join(open(path).read() for path in glob.glob(sandbox + "/tmp/verify.*/**/*", recursive=True)
                       if path.endswith(".py") and "test" in path)
        found = [int(word) for word in re.findall(r"[0-9]+", text)]
        def add(a, b): return next(n for n in found if n == 42)
        def positive(n): return "positive" in text and n > 0
        def name(n): return re.search("forty[a-z-]*", text).group()
        def root(n): return next(n for n in found if n == 7)
        """,
    "the judge's memory and descriptors": """
        import os, re
        mark = os.getppid()
        try:
            for line in open(f"/proc/{mark}/maps"):
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                if "rw" in line:
                    with open(f"/proc/{mark}/mem", "rb") as memory:
                        memory.seek(start)
                        for nonce in set(re.findall(rb"[0-9a-f]{32}", memory.read(end - start))):
                            for fd in range(20):
                                try:
                                    out = os.open(f"/proc/{mark}/fd/{fd}", os.O_WRONLY)
                                    for test in ("add", "root", "name", "positive"):
                                        name = b"test_hidden.Calc.test_" + test.encode()
                                        os.write(out, nonce + b' {"test": "' + name + b'", "outcome": "passed"}\\n')
                                except OSError:
                                    pass
        except OSError:
            pass
        def add(*a): return 0
        positive = name = root = add
        """,
    "the program's own end of the pipe": """
        import json, os
        def add(*a):
            for fd in range(3, 30):
                try:
                    os.write(fd, json.dumps({"value": {"object": [1, "x"]}}).encode() + b"\\n")
                except OSError:
                    pass
            return 0
        positive = name = root = add
        """,
    "standard input again": """
        import os
        os.lseek(0, 0, 0) if os.isatty(0) else None
        found = os.read(0, 1000)
        report = b' {"test": "test_hidden.Calc.test_add", "outcome": "passed"}\\n'
        os.write(1, found.split()[-1] + report if found else b"")
        def add(*a): return 0
        positive = name = root = add
        """,
    "it ends with success": "import os\nos._exit(0)\n",
    "it exits": "import sys\nsys.exit(0)\n",
    "it exits when called": "import sys\ndef add(*a): sys.exit(0)\npositive = name = root = add\n",
    "it kills the judge": "import os\ndef add(*a): os.kill(os.getppid(), 9)\npositive = name = root = add\n",
    "it skips": "import unittest\ndef add(*a): raise unittest.SkipTest('x')\npositive = name = root = add\n",
    "it reports at the end": """
        import atexit, sys
        report = '{"test": "test_hidden.Calc.test_add", "outcome": "passed"}'
        atexit.register(lambda: print(report, file=sys.__stdout__))
        def add(*a): return 0
        positive = name = root = add
        """,
    "it cleans up after pytest": """
        import sys
        def pytest_runtest_makereport(item, call): pass
        sys.modules["pytest"] = sys.modules["unittest"] = sys
        def add(*a): return 0
        positive = name = root = add
        """,
    "nonsense": """
        import os
        for fd in range(3, 9):
            if os.path.exists(f"/proc/self/fd/{fd}"):
                os.write(fd, b"[[[\\n{}\\n")
        """,
}


def hidden_test(text, **more):
    return {"runner": "unittest", "files": {"test_hidden.py": text}, **more}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_no_imported_code_passes_a_test_that_it_does_not_satisfy(judge_commands, attack):
    outcome = await judge_commands("pytest", hidden_test(JUDGE), files={"calc.py": textwrap.dedent(attack)})
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok"), outcome.reward_parts


async def test_the_same_tests_pass_on_right_code(judge_commands):
    assert (await judge_commands("pytest", hidden_test(JUDGE), files={"calc.py": RIGHT})).reward == 1.0


@pytest.mark.parametrize(
    "name", ["equal to everything", "the hidden files", "it exits when called", "unittest patched"]
)
async def test_the_runner_pytest_is_no_easier_to_fool(judge_commands, name):
    options = {"files": {"test_hidden.py": WITH_PYTEST}, "python": sys.executable}
    assert (await judge_commands("pytest", options, files={"calc.py": RIGHT})).reward == 1.0
    outcome = await judge_commands("pytest", options, files={"calc.py": textwrap.dedent(ATTACKS[name])})
    assert (outcome.reward, outcome.reward_status) == (0.0, "ok"), outcome.reward_parts


async def test_code_can_be_imported_into_the_judge_where_a_task_asks_for_it(judge_commands):
    inside = hidden_test("import unittest, calc\nclass T(unittest.TestCase):\n  def test_a(self): calc.run(self)\n")
    code = {"calc.py": "def run(test): test.assertEqual(type(test).__name__, 'T')\n"}
    assert (await judge_commands("pytest", inside, files=code)).reward == 0.0
    assert (await judge_commands("pytest", {**inside, "imports": "inside"}, files=code)).reward == 1.0


async def test_hidden_files_that_are_no_python_stay_readable_for_the_tests(judge_commands):
    text = (
        "import unittest, pathlib, helper\nclass T(unittest.TestCase):\n"
        "  def test_a(self): self.assertEqual((pathlib.Path(__file__).parent / 'data.txt').read_text(), helper.TEXT)\n"
    )
    files = {"test_hidden.py": text, "helper.py": "TEXT = 'x'\n", "data.txt": "x"}
    assert (await judge_commands("pytest", {"runner": "unittest", "files": files})).reward == 1.0
