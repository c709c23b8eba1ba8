"""The agent's small forms of standard modules do what the standard ones do, also where a Python lacks C modules."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_sandbox.agent.basics import json_text, libc, stdlib
from hermes_sandbox.agent.file_access.directories import make_directories
from hermes_sandbox.agent.processes import read_file
from hermes_sandbox.agent.slot import Slot

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
FORMS = [contextlib, stdlib]
WITHOUT = """
import sys
{prepare}
from hermes_sandbox.agent.basics import json_text, libc, stdlib
from hermes_sandbox.agent.seccomp import confine_sockets
assert json_text.from_json(json_text.to_json({{"a": [1, "\\udce9"]}})) == {{"a": [1, "\\udce9"]}}
libc.prctl(15, b"renamed")
assert open("/proc/self/comm").read() == "renamed\\n"
print(stdlib.heappop.__module__, type(stdlib.signal.SIGTERM).__name__, json_text.to_json.__module__, confine_sockets())
"""


@pytest.mark.parametrize("form", FORMS)
class TestContexts:
    def test_a_listed_error_ends_the_block_and_another_passes(self, form):
        with form.suppress(KeyError, OSError):
            raise FileNotFoundError
        with pytest.raises(ValueError, match="other"), form.suppress(KeyError):
            raise ValueError("other")
        with pytest.raises(ValueError, match="any"), form.suppress():
            raise ValueError("any")

    def test_a_function_that_yields_once_is_a_context(self, form):
        steps = []

        @form.contextmanager
        def note(name, *, end):
            steps.append(name)
            try:
                yield name.upper()
            finally:
                steps.append(end)

        with note("begin", end="end") as value:
            steps.append(value)
        steps.append("after")
        assert steps == ["begin", "BEGIN", "end", "after"]

    @pytest.mark.parametrize("error", [ValueError("one"), StopIteration("two"), KeyboardInterrupt("three")])
    def test_an_error_of_the_block_reaches_the_function_and_passes(self, form, error):
        seen = []

        @form.contextmanager
        def look():
            try:
                yield
            except BaseException as raised:
                seen.append(raised)
                raise

        with pytest.raises(type(error)) as caught, look():
            raise error
        assert (caught.value, seen) == (error, [error])

    def test_the_function_may_handle_an_error_or_raise_another(self, form):
        @form.contextmanager
        def replace(other):
            try:
                yield
            except KeyError:
                if other is not None:
                    raise other from None

        with replace(None):
            raise KeyError
        with pytest.raises(OSError, match="instead"), replace(OSError("instead")):
            raise KeyError


@pytest.mark.parametrize("base", [NamedTuple, stdlib.NamedTuple])
def test_a_tuple_has_names_defaults_and_copies(base):
    Point = make_point(base)  # noqa: N806 - a class
    assert Point(1, 2) == Point(x=1, y=2) == (1, 2, 0)
    assert (Point(1, y=2, z=3).z, Point(1, 2)._replace(y=5), Point(1, 2).sum) == (3, (1, 5, 0), 3)
    with pytest.raises(AttributeError):
        Point(1, 2).x = 3
    assert copy.copy(Point(1, 2)) == copy.deepcopy(Point(1, 2)) == (1, 2, 0)
    assert repr(Point(1, 2)).endswith("(x=1, y=2, z=0)")
    for items, named in [((), {}), ((1,), {}), ((1, 2, 3, 4), {}), ((1, 2), {"w": 1}), ((1, 2), {"y": 1})]:
        with pytest.raises(TypeError):
            Point(*items, **named)


def make_point(base):
    if base is NamedTuple:

        class Point(NamedTuple):
            x: int
            y: int
            z: int = 0

            @property
            def sum(self):
                return self.x + self.y + self.z

        return Point

    class Small(base):
        x: int
        y: int
        z: int = 0

        @property
        def sum(self):
            return self.x + self.y + self.z

    return Small


@given(JSON)
def test_json_is_that_of_the_standard_module(value):
    text = json_text.to_json(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert json_text.from_json(text) == json.loads(text)


def test_numbers_that_json_does_not_have_are_read_as_the_standard_module_reads_them():
    for text in ("NaN", "Infinity", "-Infinity"):
        assert repr(json_text.from_json(text)) == repr(json.loads(text))
        assert json_text.to_json(json.loads(text)) == text


@pytest.mark.parametrize("text", ["", '"\n"', "{", '{"a"}', "[1,]", "1 2", "{} ", "nothing", "\ud800"])
def test_text_that_is_no_json_is_refused(text):
    with pytest.raises(ValueError):
        json_text.from_json(text)


def test_what_json_cannot_say_is_refused_and_harms_no_later_value():
    circle = []
    circle.append(circle)
    for wrong, error in ((object(), TypeError), (circle, RecursionError)):
        with pytest.raises(error):
            json_text.to_json({"a": wrong})
    assert json_text.to_json({"a": [circle[:0]]}) == '{"a":[[]]}'


class TestDirectories:
    def test_those_above_are_made_with_the_usual_mode_and_the_last_with_its_own(self, tmp_path):
        make_directories(f"{tmp_path}/a/b//c/", 0o700)
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")]
        assert modes == [0o755, 0o755, 0o700]
        make_directories(f"{tmp_path}/a/b", 0o700)
        assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o755

    def test_a_path_of_very_many_parts_is_made(self, tmp_path):
        deep = str(tmp_path) + "/d" * 1500
        try:
            make_directories(deep)
            assert Path(deep).is_dir()
        finally:
            # pytest's own removal calls itself for each of them.
            subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)

    @pytest.mark.parametrize("part", ["x" * 200, "y"])
    def test_a_path_that_is_too_long_is_an_error_and_makes_nothing(self, tmp_path, part):
        with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)):
            make_directories(f"{tmp_path}/{part}" * 1 + f"/{part}" * (6000 // (len(part) + 1)))
        assert list(tmp_path.iterdir()) == []

    def test_a_file_or_a_link_to_nothing_in_its_way_is_an_error(self, tmp_path):
        (tmp_path / "file").touch()
        (tmp_path / "link").symlink_to("nowhere")
        for name, error in (("file", FileExistsError), ("file/x", NotADirectoryError), ("link/x", FileExistsError)):
            with pytest.raises(error):
                make_directories(f"{tmp_path}/{name}")


@given(st.text(alphabet="ab./", max_size=12), st.sampled_from(["/w", "/w/", "/", "/a//b/./c"]))
def test_a_path_of_a_slot_is_that_of_pathlib(text, workspace):
    path = Slot(None, 1, "m", {"workspace": workspace}).path(text)
    assert path == "/" + str(PurePosixPath(workspace, text)).lstrip("/")


def test_a_file_without_a_size_is_read_to_its_end(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    assert len(read_file(f"{tmp_path}/long")) == 100_000
    assert read_file("/proc/self/stat").startswith(f"{os.getpid()} ".encode())


def test_an_attribute_that_the_kernel_does_not_have_is_an_error():
    with pytest.raises(OSError, match=os.strerror(22)):
        libc.prctl(12_345, 1)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        ("", "_heapq int hermes_sandbox.agent.basics.json_text "),
        ("sys.modules['_heapq'] = None", "heapq Signals hermes_sandbox.agent.basics.json_text "),
        ("sys.modules['_json'] = None", "_heapq int json.encoder "),
        ("import ctypes, _ctypes; del _ctypes.dlopen", "_heapq int hermes_sandbox.agent.basics.json_text "),
    ],
)
def test_a_python_without_a_c_module_gets_the_full_one(prepare, said):
    program = WITHOUT.format(prepare=prepare)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.removesuffix("\n"), done.stderr) == (said, "")
