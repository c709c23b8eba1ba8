"""Usual programs that start many processes and threads have room under the bound that every sandbox has."""

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


@pytest.fixture(params=LEVELS)
async def box(request):
    async with open_one(request.param) as opened:
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


@pytest.mark.component("chromium")
async def test_chromium_shows_a_page(box):
    program = next(filter(shutil.which, CHROMIUM))
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    # HOME is the sandbox's own, at either level.
    page = "--user-data-dir=$HOME/profile --dump-dom 'data:text/html,<p>ok'"
    shown = await box.exec(f"{program} {flags} {page}", timeout=110)
    assert b"<p>ok</p>" in shown.stdout, shown.output
