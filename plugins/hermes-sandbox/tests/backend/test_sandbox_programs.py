"""Usual programs have room under the bound that every sandbox has, and work where most sockets are refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from sandbox_support import LEVELS
from sandbox_support import sandbox as open_one

TARGETS = " ".join(f"target-{number}" for number in range(200))
MAKEFILE = f"all: {TARGETS}\n{TARGETS}:\n\t@sh -c 'sleep 0.3; :' && touch $@\n"
"""Three processes for each target, all at the same time."""
JAVA = """
public class Main {
    public static void main(String[] arguments) throws InterruptedException {
        Thread[] threads = new Thread[50];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(Main::pause);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("all " + threads.length + " have ended");
    }

    static void pause() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
"""
CHROMIUM = ("/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome")
"""First the program itself: Debian's wrapper for it reads files of /etc that bubblewrap does not show."""


NODE = """
const fs = require('fs'), http = require('http'), net = require('net');
const server = http.createServer((asked, answer) => fs.readFile('page', (error, data) => answer.end(data)));
server.listen(0, '127.0.0.1', () => http.get({port: server.address().port, host: '127.0.0.1'}, answer => {
    answer.on('data', data => console.log(String(data)));
    answer.on('end', () => {
        server.close();
        const pipe = net.createServer(socket => socket.end('by a pipe')).listen('socket', () =>
            net.connect('socket').on('data', data => console.log(String(data))).on('close', () => pipe.close()));
    });
}));
require('child_process').exec('echo from a child', (error, out) => console.log(out.trim()));
"""
CLOSED = pytest.param("bwrap, network none", marks=pytest.mark.component("bwrap"))


@pytest.fixture(params=[*LEVELS, CLOSED])
async def box(request):
    level, _, closed = request.param.partition(", ")
    async with open_one(level, network="none" if closed else "full") as opened:
        assert "pids" in opened.provenance["limits"]
        yield opened


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
async def test_make_runs_200_jobs_at_a_time(box):
    await box.write_file("Makefile", MAKEFILE)
    built = await box.exec("make -j && ls -d target-* | wc -l", timeout=110)
    assert built.output == "200\n"


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """A program, compiled on this machine: the compiler wants files of /etc that bubblewrap does not show."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        pytest.skip("java and javac are not on PATH")
    folder = tmp_path_factory.mktemp("classes")
    Path(folder, "Main.java").write_text(JAVA, encoding="utf-8")
    subprocess.run(["javac", "-d", folder, folder / "Main.java"], check=True)
    return folder


async def test_a_jvm_starts_50_threads_beside_its_own(box, classes):
    await box.upload(classes, "classes")
    version = await box.exec("java -version", timeout=60)
    assert (version.exit_code, "version" in version.output) == (0, True)
    ended = await box.exec("java -cp classes Main", timeout=60)
    assert ended.output == "all 50 have ended\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
async def test_node_serves_files_by_its_loopback_and_by_pipes(box):
    await box.write_file("page", b"by http")
    await box.write_file("main.js", NODE.encode())
    # What it reads by io_uring, where it may, is the same.
    ran = await box.exec("UV_USE_IO_URING=1 node main.js", timeout=60)
    assert sorted(ran.output.splitlines()) == ["by a pipe", "by http", "from a child"]


@pytest.mark.component("chromium")
async def test_chromium_shows_a_page(box):
    program = next(filter(shutil.which, CHROMIUM))
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    # HOME is the sandbox's own, at either level.
    page = "--user-data-dir=$HOME/profile --dump-dom 'data:text/html,<p>ok'"
    shown = await box.exec(f"{program} {flags} {page}", timeout=110)
    assert b"<p>ok</p>" in shown.stdout, shown.output
