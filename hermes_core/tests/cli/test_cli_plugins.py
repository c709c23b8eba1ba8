"""`hermes-core plugins`: list, show, doctor."""

from __future__ import annotations

import json
import os
import select
import sys

import pytest
from throwaway_plugins import Site, backend, verifier

from hermes_core.cli import main


@pytest.fixture
def plugins(capsys):
    """Run `hermes-core plugins …` and return the exit status and what was printed."""

    def run(*arguments, allow="acme-docker", **environ):
        status = main(["plugins", *arguments], environ={"HERMES_PLUGINS": allow, **environ})
        return status, capsys.readouterr().out

    return run


def lines_of(text, word):
    return [line for line in text.splitlines() if word in line.partition("  not in the allow-list")[0]]


def has_ended(pid):
    """Wait for the end of a process that has been killed already; it may take the kernel a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(60_000))
    finally:
        os.close(handle)


class TestList:
    def test_the_default_imports_no_plugin(self, site, plugins):
        """A complaint about other plugin frameworks: a broken plugin made the command fail that would remove it."""
        site.install("acme-docker", "raise AssertionError('imported')", version="3.1")
        status, text = plugins("list")
        assert status == 0
        (line,) = lines_of(text, "acme-docker")
        assert line.split() == ["docker", "acme-docker", "3.1", "found", "-"]
        assert "blocked" in lines_of(text, "hermes-tools")[0]
        assert site.module("acme_docker") not in sys.modules

    def test_loading_shows_states_times_and_reasons(self, site, plugins):
        site.install("acme-docker", backend())
        site.install("acme-broken", "import no_such_package")
        status, text = plugins("list", "--load", allow="acme-docker,acme-broken")
        assert status == 0
        assert "loaded" in lines_of(text, "acme-docker")[0]
        assert "ms" in lines_of(text, "acme-docker")[0]
        assert "ModuleNotFoundError: No module named 'no_such_package'" in lines_of(text, "acme-broken")[0]

    def test_strict_listing_fails_and_still_lists(self, site, plugins):
        site.install("acme-docker", "raise RuntimeError")
        status, text = plugins("list", "--load", HERMES_PLUGINS_STRICT="1")
        assert status == 1
        assert "failed" in lines_of(text, "acme-docker")[0]

    def test_a_conflict_is_shown_with_the_line_that_settles_it(self, site, plugins):
        site.install("acme-docker", backend())
        site.install("other-docker", backend())
        _, text = plugins("list", "--load", allow="acme-docker,other-docker")
        assert 'prefer: {"backend:docker": "acme-docker:docker"}' in lines_of(text, "CONFLICT")[0]

    def test_json_is_complete_and_nothing_a_plugin_prints_gets_into_it(self, site, plugins):
        site.install("acme-docker", "print('noise')\n" + __import__("textwrap").dedent(backend()))
        status, text = plugins("list", "--load", "--json")
        assert status == 0
        (plugin,) = [p for p in json.loads(text)["plugins"] if p["distribution"] == "acme-docker"]
        assert plugin["components"] == ["backend:docker"]
        assert plugin["state"] == "loaded"
        assert json.loads(text)["conflicts"] == []

    def test_a_listing_without_loading_has_the_same_shape(self, site, plugins):
        site.install("acme-docker", backend())
        loaded = json.loads(plugins("list", "--load", "--json")[1])
        found = json.loads(plugins("list", "--json")[1])
        assert [p["plugin"] for p in found["plugins"]] == [p["plugin"] for p in loaded["plugins"]]
        assert [set(p) for p in found["plugins"]] == [set(p) for p in loaded["plugins"]]

    def test_a_local_plugin_is_in_the_same_listing(self, site, plugins, tmp_path):
        (tmp_path / "mine.py").write_text("")
        _, text = plugins("-p", str(tmp_path / "mine.py"), "list", allow="")
        assert lines_of(text, "local")[0].split()[:4] == ["mine", "local", "-", "found"]


class TestShow:
    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("acme-dokcer", "acme-docker"),
            ("acme-docker:dockr", "acme-docker:docker"),
            ("exat", "exact"),
            ("backend:dockr", "backend:docker"),
        ],
    )
    def test_a_misspelt_name_of_a_plugin_or_a_component_offers_a_near_one(self, site, capsys, name, near):
        site.install("acme-docker", backend() + verifier())
        assert main(["plugins", "show", name], environ={"HERMES_PLUGINS": "acme-docker"}) == 2
        said = f"{name!r} is neither a plugin nor a loaded component\n  → did you mean {near!r}?\n"
        assert capsys.readouterr().err.endswith(said)

    def test_an_empty_name_is_near_to_none(self, site, capsys):
        site.install("acme-docker", backend())
        assert main(["plugins", "show", ""], environ={"HERMES_PLUGINS": "acme-docker"}) == 2
        assert "did you mean" not in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["acme-docker", "docker", "acme-docker:docker"])
    def test_a_plugin_is_shown_with_its_spec_origin_and_requirements(self, site, plugins, name):
        direct = {"url": "https://host/repo", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
        site.install("acme-docker", backend(requires=("env:ACME_TOKEN",)), files={"direct_url.json": direct})
        status, text = plugins("show", name)
        assert status == 0
        assert "record_sha256: " in text
        assert "https://host/repo" in text
        assert "requires: env:ACME_TOKEN" in text
        assert "state: unavailable" in text
        assert "reason: the environment variable ACME_TOKEN is not set" in text

    @pytest.mark.parametrize("name", ["exact", "verifier:exact"])
    def test_a_component_is_shown_with_the_schema_of_its_options(self, site, plugins, name):
        source = "import pydantic\nclass Options(pydantic.BaseModel):\n    limit: int\n"
        body = "Options = Options"
        site.install("acme-checks", source + __import__("textwrap").dedent(verifier(body=body)))
        status, text = plugins("show", name, "--schema", "--json", allow="acme-checks")
        assert status == 0
        (component,) = json.loads(text)["plugins"][0]["components"]
        assert component["schema"]["properties"]["limit"]["type"] == "integer"
        assert component["state"] == "ready"
        assert (
            json.loads(plugins("show", name, "--json", allow="acme-checks")[1])["plugins"][0]["components"][0]["state"]
            == "declared"
        )

    def test_showing_one_plugin_loads_no_other(self, site, plugins):
        site.install("acme-docker", backend())
        site.install("other-one", "raise AssertionError")
        assert plugins("show", "acme-docker", allow="acme-docker,other-one")[0] == 0
        assert site.module("other_one") not in sys.modules

    def test_a_blocked_plugin_is_shown_without_being_imported(self, site, plugins):
        """A complaint about other plugin frameworks: what is disabled must not be imported, whoever asks."""
        site.install("acme-crate", "raise AssertionError('imported')")
        status, text = plugins("show", "acme-crate", allow="acme-crate", HERMES_PLUGINS_DISABLE="crate")
        assert status == 0
        assert "state: blocked\nnote: disabled as 'crate'" in text
        assert site.module("acme_crate") not in sys.modules

    def test_a_failed_plugin_can_be_shown(self, site, plugins):
        site.install("acme-docker", "raise RuntimeError('boom')")
        status, text = plugins("show", "acme-docker")
        assert status == 1
        assert "note: RuntimeError: boom" in text

    def test_an_unknown_name_is_an_error_with_the_known_ones(self, site, capsys):
        assert main(["plugins", "show", "nobody"], environ={}) == 2
        assert "hermes-tools:tools" in capsys.readouterr().err


class TestDoctor:
    def findings(self, plugins, *names, timeout="60"):
        status, text = plugins("doctor", "--json", "--timeout", timeout, allow=",".join(names))
        return status, [f for f in json.loads(text)["findings"] if "blocked" not in f["message"]]

    def test_a_healthy_plugin_passes(self, site, plugins):
        site.install("acme-docker", backend())
        status, (finding,) = self.findings(plugins, "acme-docker")
        assert status == 0
        assert finding["level"] == "ok"
        assert "components: 1" in finding["message"]

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("import os; os._exit(0)", "ended with exit status 0 while loading the plugin"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV while loading"),
            ("import sys; sys.exit(3)", "it called sys.exit(3)"),
            ("import no_such_package", "ModuleNotFoundError"),
            ("@hookimpl\ndef hermes_backend():\n    return []", "did you mean 'hermes_backends'?"),
        ],
    )
    def test_a_plugin_that_takes_its_process_down_is_reported(self, site, plugins, source, message):
        """A complaint about other plugin frameworks: a doctor that loads differently from the runtime stays green."""
        site.install("acme-docker", source)
        site.install("acme-good", verifier())
        status, (bad, good) = self.findings(plugins, "acme-docker", "acme-good")
        assert status == 1
        assert (bad["level"], bad["subject"]) == ("error", "acme-docker:docker")
        assert message in bad["message"]
        assert good["level"] == "ok"

    def test_a_hanging_plugin_is_killed_with_its_children(self, site, plugins, tmp_path):
        pid = tmp_path / "pid"
        source = f"""
        import subprocess, pathlib
        child = subprocess.Popen(["sleep", "1000"])
        pathlib.Path({str(pid)!r}).write_text(str(child.pid))
        child.wait()
        """
        site.install("acme-docker", source)
        for seconds in ("3", "10", "40"):  # until the plugin came to its child
            status, (finding,) = self.findings(plugins, "acme-docker", timeout=seconds)
            assert status == 1
            assert f"did not finish within {seconds} seconds while loading the plugin" in finding["message"]
            if pid.exists() and pid.read_text():
                break
        assert has_ended(int(pid.read_text()))

    def test_every_target_is_imported_and_checked_through_the_real_loader(self, site, plugins):
        source = verifier() + backend() + backend("gone", target="no_such:X").replace("hermes_backends", "_unused")
        site.install("acme-docker", source.replace("@hookimpl\n    def _unused", "def _unused"))
        site.install("acme-bad", verifier("bad").replace("def score(self, result, context)", "def score(self)"))
        site.install("acme-exits", backend("exits", target="exits_at_once:X"))
        (site.folder / "exits_at_once.py").write_text("import os; print('last words', flush=True); os._exit(5)")
        status, findings = self.findings(plugins, "acme-docker", "acme-bad", "acme-exits")
        assert status == 1
        errors = {finding["subject"]: finding for finding in findings if finding["level"] == "error"}
        assert set(errors) == {"acme-bad:bad", "acme-exits:exits"}
        assert "score does not take 'result'; score does not take 'context'" in errors["acme-bad:bad"]["message"]
        assert "exit status 5 while importing backend:acme-exits:exits:exits" in errors["acme-exits:exits"]["message"]
        assert "last words" in errors["acme-exits:exits"]["detail"]

    def test_a_missing_requirement_is_a_warning(self, site, plugins):
        site.install("acme-docker", backend(target="no_such:X", requires=("bin:no-such-program-x",)))
        status, (_, finding) = self.findings(plugins, "acme-docker")
        assert status == 0
        assert (finding["level"], finding["detail"]) == ("warning", "")
        assert "the program 'no-such-program-x' is not on PATH" in finding["message"]

    def test_a_heavy_plugin_module_is_a_warning(self, site, plugins):
        """A complaint about other plugin frameworks: the start grew with every plugin."""
        site.install("acme-docker", "import pydantic\n" + __import__("textwrap").dedent(backend()))
        status, (_, finding) = self.findings(plugins, "acme-docker")
        assert status == 0
        assert "importing it imports pydantic" in finding["message"]

    def test_a_plugin_that_does_nothing_is_a_warning(self, site, plugins):
        site.install("acme-docker", "pass")
        _, (_, finding) = self.findings(plugins, "acme-docker")
        assert (finding["level"], finding["message"]) == ("warning", "it implements no hook, so it does nothing")

    def test_conflicts_are_errors_until_they_are_settled(self, site, plugins):
        site.install("acme-docker", backend())
        site.install("other-docker", backend())
        status, findings = self.findings(plugins, "acme-docker", "other-docker")
        assert status == 1
        (conflict,) = [finding for finding in findings if finding["level"] == "error"]
        assert conflict["subject"] == "backend:docker"
        assert "acme-docker:docker, other-docker:docker" in conflict["message"]

    def test_stale_metadata_is_a_warning(self, site, plugins, tmp_path, monkeypatch):
        site.install("acme-docker", backend(), version="2.0")
        behind = tmp_path / "behind"
        behind.mkdir()
        Site(behind).metadata("acme-docker", {"docker": "x"}, version="1.0")
        monkeypatch.setattr(sys, "path", [*sys.path, str(behind)])
        status, findings = self.findings(plugins, "acme-docker")
        assert status == 0
        assert findings[-1]["message"] == "installed 2 times: 2.0 is used, 1.0 is hidden; reinstall it"

    def test_a_local_file_is_examined_too(self, site, plugins, tmp_path):
        (tmp_path / "mine.py").write_text("raise RuntimeError('boom')")
        status, text = plugins("-p", str(tmp_path / "mine.py"), "doctor", allow="")
        assert status == 1
        (line,) = lines_of(text, "ERROR")
        assert line == "ERROR    local:mine  failed: RuntimeError: boom"
        assert "| RuntimeError: boom" in text
        assert "1 error, 0 warnings" in text
