"""What is found in the metadata, and which of it may load."""

from __future__ import annotations

import sys

import pytest
from throwaway_plugins import Site, backend

from hermes_core.contracts.errors import BrokenComponentError, ConfigError
from hermes_core.discovery import PluginSettings
from hermes_core.discovery.installation.distributions import copies, installed_version
from hermes_core.discovery.installation.metadata import scan_entry_points
from hermes_core.discovery.installation.selection import find_plugins

MARKS_IMPORT = "raise AssertionError('a blocked plugin was imported')"


def find_records(**settings):
    return {record.id: record for record in find_plugins(PluginSettings(**settings))}


def test_finding_imports_nothing(site):
    site.install("acme-docker", MARKS_IMPORT)
    assert find_records()["acme-docker:docker"].state == "found"
    assert site.module("acme_docker") not in sys.modules


@pytest.mark.parametrize(
    "name", ["acme-docker", "Acme_Docker", "acme.docker", "tainer", "Tainer", "acme_docker:tainer"]
)
def test_a_filter_takes_a_distribution_or_an_entry_point_normalised(site, load, name):
    """A complaint about other plugin frameworks: which name do I block?"""
    site.install("Acme.Docker", MARKS_IMPORT, entry="tainer")
    assert find_records(disable=(name,))["acme-docker:tainer"].state == "blocked"
    assert find_records(allow=(name,))["acme-docker:tainer"].state == "found"


def test_a_blocked_plugin_is_never_imported(site, load):
    """A complaint about other plugin frameworks: disabled plugins were imported and thrown away."""
    site.install("acme-crate", MARKS_IMPORT)
    load(allow=())
    load(allow=("acme-crate",), disable=("crate",))
    assert site.module("acme_crate") not in sys.modules


def test_an_empty_allow_list_admits_nothing_not_even_our_own(site):
    assert {str(record.state) for record in find_records(allow=()).values()} == {"blocked"}


def test_disable_wins_over_allow_and_says_why(site):
    site.install("acme-crate")
    record = find_records(allow=("acme-crate",), disable=("crate",))["acme-crate:crate"]
    assert (record.state, record.note) == ("blocked", "disabled as 'crate'")


@pytest.mark.parametrize("where", ["allow", "disable"])
def test_an_unknown_name_in_a_filter_is_an_error_with_the_known_ones(site, where):
    """A complaint about other plugin frameworks: an unknown name in a filter was ignored without a word."""
    site.install("acme-docker")
    with pytest.raises(ConfigError, match="names 'acme-dokcer', which is not an installed plugin") as caught:
        find_records(**{where: ("acme-dokcer",)})
    assert "did you mean 'acme-docker'?" in str(caught.value)
    assert "hermes-tools:tools" in str(caught.value)


@pytest.mark.parametrize("where", ["allow", "disable"])
@pytest.mark.parametrize("name", ["hermes-agent-core", "hermes_agent_core"])
def test_a_filter_that_names_the_core_is_told_to_leave_it_out(where, name):
    with pytest.raises(ConfigError, match="remove the name: the core itself is always used") as caught:
        find_records(**{where: (name,)})
    assert "did you mean" not in str(caught.value)


def test_a_filter_name_that_means_two_distributions_is_an_error(site):
    site.install("acme-crate")
    site.install("other-crate")
    with pytest.raises(ConfigError, match="several plugins: acme-crate:crate, other-crate:crate"):
        find_records(allow=("crate",))
    assert find_records(allow=("other-crate:crate",))["acme-crate:crate"].state == "blocked"


def test_a_distribution_name_covers_all_its_plugins(site):
    site.metadata("acme-all", {"one": "a", "two": "b"})
    assert {i for i, record in find_records(allow=("acme-all",)).items() if record.state == "found"} == {
        "acme-all:one",
        "acme-all:two",
    }


def test_asking_for_an_installed_plugin_admits_it_past_the_allow_list(site, load):
    site.install("acme-crate", backend())
    assert load(allow=(), extra=("acme-crate",)).names("backend") == ("docker",)


def test_asking_for_a_plugin_and_disabling_it_is_an_error(site, load):
    site.install("acme-crate", backend())
    with pytest.raises(
        BrokenComponentError, match=r"(?s)was asked for, but is disabled as 'crate'.*take it out of 'extra'"
    ):
        load(extra=("acme-crate",), disable=("crate",))


def test_a_distribution_that_lies_there_twice_counts_once_and_is_reported(site, tmp_path, monkeypatch):
    """A complaint about other plugin frameworks: editable installs were listed twice."""
    site.install("acme-docker", backend(), version="2.0")
    behind = tmp_path / "behind"
    behind.mkdir()
    Site(behind).metadata("acme-docker", {"docker": "old.module"}, version="1.0")
    monkeypatch.syspath_prepend(str(behind))
    monkeypatch.syspath_prepend(str(site.folder))
    plugins = [plugin for plugin in scan_entry_points() if plugin.distribution == "acme-docker"]
    assert [(plugin.version, plugin.value) for plugin in plugins] == [("2.0", site.module("acme_docker"))]
    assert copies("acme-docker") == ["2.0", "1.0"]


def test_what_a_failed_removal_leaves_of_a_distribution_is_no_copy(site, tmp_path, monkeypatch):
    """An empty folder of metadata was taken for the installed version, which was None then."""
    site.install("acme-docker", backend(), version="2.0")
    before = tmp_path / "before"
    (before / "acme_docker-1.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(before))
    assert copies("acme-docker") == ["2.0"]
    assert installed_version("Acme.Docker") == "2.0"
    (before / "acme_docker-1.0.dist-info" / "METADATA").write_bytes(b"Name: acme-docker\nVersion: 1.0\xff\n")
    assert copies("acme-docker") == ["2.0"]
    (site.folder / "acme_docker-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-docker\n")
    assert installed_version("acme-docker") is None


def test_an_entry_point_that_is_written_twice_counts_once(site):
    info = site.metadata("acme-twice", {"one": "acme.one"})
    (info / "entry_points.txt").write_text("[hermes_core.plugins]\none = acme.one\none = acme.one\n")
    assert [plugin.id for plugin in scan_entry_points() if plugin.distribution == "acme-twice"] == ["acme-twice:one"]


@pytest.mark.parametrize(
    "content", [b"[hermes_core.plugins]\nthis is no entry point\n", b"\xff\xfe[hermes_core.plugins]\n"]
)
def test_unreadable_metadata_is_one_failed_plugin_and_no_crash(site, load, content):
    info = site.metadata("acme-torn", {})
    (info / "entry_points.txt").write_bytes(content)
    site.install("acme-docker", backend())
    record = find_records()["acme-torn:unknown"]
    assert record.state == "failed"
    assert "entry_points.txt cannot be read" in record.note
    assert load("acme-docker", "acme-torn").names("backend") == ("docker",)


def test_entry_points_are_read_as_the_standard_library_reads_them(site):
    from importlib.metadata import entry_points

    text = "[console_scripts]\nx = y:z\n\n[hermes_core.plugins]\n# a comment\n"
    text += "one=acme.one\n two =  acme.two:thing \n[z]\nq = r\n"
    site.metadata("acme-all", {}, files={"entry_points.txt": text})
    expected = {(point.name, point.value) for point in entry_points(group="hermes_core.plugins")}
    assert {(plugin.name, plugin.value) for plugin in scan_entry_points()} == expected
    assert ("two", "acme.two:thing") in expected


def test_an_entry_point_value_that_is_no_module_is_a_failed_plugin(site, load):
    site.metadata("acme-odd", {"odd": "not a module!"})
    (record,) = [r for r in load("acme-odd").plugins if r.id == "acme-odd:odd"]
    assert record.state == "failed"


def test_a_distribution_without_readable_metadata_is_still_listed(site):
    info = site.metadata("acme-bare", {"bare": "acme.bare"})
    (info / "METADATA").unlink()
    assert any(plugin.value == "acme.bare" for plugin in scan_entry_points())
