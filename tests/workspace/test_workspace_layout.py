"""What every package of the workspace has, read from the tree, so that a new one cannot forget it."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from check_requirements import pin_findings, sibling_findings
from workspace import ROOT, Package, packages

MEMBERS = packages()
each_package = pytest.mark.parametrize("package", MEMBERS, ids=lambda package: package.name)


def _settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


@each_package
@pytest.mark.parametrize("name", ["README.md", "LICENSE", "tests"])
def test_a_package_brings_its_own_readme_licence_and_tests(package: Package, name: str):
    assert (package.folder / name).exists()


@each_package
def test_a_package_ships_its_types(package: Package):
    assert (package.folder / "src" / package.import_name / "py.typed").is_file()


@each_package
def test_a_distribution_and_its_import_name_belong_together(package: Package):
    expected = {"hermes-agent-core": "hermes_core"}.get(package.name, package.name.replace("-", "_"))
    assert package.import_name == expected


@each_package
def test_a_package_is_under_the_licence_of_the_project(package: Package):
    assert package.data["project"]["license"] == "MIT"
    assert (package.folder / "LICENSE").read_text(encoding="utf-8") == (ROOT / "LICENSE").read_text(encoding="utf-8")


@each_package
def test_the_workspace_takes_a_package_from_the_tree(package: Package):
    assert _settings()["uv"]["sources"][package.name] == {"workspace": True}


@each_package
def test_the_type_checker_sees_the_sources_of_a_package(package: Package):
    assert str((package.folder / "src").relative_to(ROOT)) in _settings()["mypy"]["mypy_path"]


def test_no_folder_holds_more_than_15_modules():
    sources = [package.folder / name for package in MEMBERS for name in ("src", "tests")]
    sources += [ROOT / name for name in ("benchmarks", "examples", "tests")]
    paths = {path for source in sources for path in source.rglob("*.py")}
    # A link shows what another package's tests share; each folder of tests may have its conftest.py besides.
    folders = Counter(path.parent for path in paths if not path.is_symlink() and path.name != "conftest.py")
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > 15}
    assert crowded == {}, "sort these into folders by topic"


@each_package
def test_tests_lie_in_folders_named_after_those_of_the_source(package: Package):
    tests, source = package.folder / "tests", package.folder / "src" / package.import_name
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    # Cases of public bug reports belong to many modules.
    unlike = [str(folder) for folder in folders - {Path("regressions")} if not (source / folder).is_dir()]
    assert unlike == [], "whoever changes a module looks for its tests in the folder of the same name"


def test_requirements_on_siblings_are_bounded():
    assert list(sibling_findings(MEMBERS)) == []


def test_the_committed_pins_satisfy_every_package():
    assert list(pin_findings(ROOT)) == []


def test_test_files_have_names_of_their_own():
    names = Counter(path.name for package in MEMBERS for path in (package.folder / "tests").rglob("test_*.py"))
    names.update(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_an_unbounded_sibling_is_found():
    project = {"name": "lonely", "version": "1.0", "dependencies": ["hermes-agent-core", "hermes-verifiers>=5,<6"]}
    lonely = Package(ROOT, {"project": project})
    first, second = sibling_findings([*MEMBERS, lonely])
    assert "needs a lower and an upper bound" in first
    assert "excludes the version in this tree" in second
