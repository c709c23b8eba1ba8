"""The examples of the pages about the tool executor and the tool server do what the pages say."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import urllib.request

import pytest
from docs_pages import blocks, page


def environment(folder, **more):
    known = ("PATH", "PYTHONPATH")
    return {**{name: os.environ[name] for name in known if name in os.environ}, "XDG_STATE_HOME": str(folder), **more}


def requests_of_page(name, url):
    """The bodies that a page posts to a route, with the answers that it shows."""
    for block in blocks(page(name), "console"):
        lines = block.replace("\\\n", " ").splitlines()
        for line, answer in itertools.pairwise(lines):
            if line.startswith("$ curl") and url in line:
                yield json.loads(line.split("-d '")[1].rstrip("' ")), json.loads(answer)


@contextlib.contextmanager
def serve_page(folder, *arguments, **variables):
    """Run a service as the page does, on a free port; its address."""
    command = [sys.executable, "-m", "hermes_core.cli", *arguments, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder, **variables), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stdout:
                if line.startswith("listening on "):
                    yield line.split()[-1]
                    break
            else:
                pytest.fail("the service did not start")
        finally:
            process.terminate()
            process.wait(60)


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    request.add_header("Authorization", "Bearer demo")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_the_executor_in_python_prints_what_its_page_says(tmp_path):
    [program] = blocks(page("tool-executor.md"), "python")
    [printed] = blocks(page("tool-executor.md"), "text")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_the_executor_as_a_service_answers_what_its_page_says(tmp_path):
    exchanges = [*requests_of_page("tool-executor.md", "/execute"), *requests_of_page("tool-executor.md", "/release")]
    assert len(exchanges) == 2
    with serve_page(tmp_path, "tool-executor", "serve", TOOL_EXECUTOR_TOKEN="demo") as url:
        answers = [
            post(url + route, body) for route, (body, _) in zip(("/execute", "/release"), exchanges, strict=True)
        ]
    assert answers == [answer for _, answer in exchanges]


def test_the_tool_server_answers_what_its_page_says(tmp_path):
    [program] = blocks(page("tool-server.md"), "python")
    (tmp_path / "lab_tools.py").write_text(program)
    [(body, answer)] = requests_of_page("tool-server.md", "/execute")
    with serve_page(
        tmp_path, "-p", "./lab_tools.py", "tool-server", "serve", LAB_KEY="abc", TOOL_SERVER_TOKEN="demo"
    ) as url:
        assert post(f"{url}/execute", body) == answer
