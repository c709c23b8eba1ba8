"""Requirements of components, evaluated without importing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hermes_core.discovery.installation.requirements import unmet_requirements, unreadable_requirements

VERSIONS = st.builds(
    lambda release, stage: ".".join(map(str, release)) + stage,
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
    st.sampled_from(["", "", "", "a1", "b2", "rc1", "rc2", ".dev3"]),
)


@pytest.fixture
def install_version(site):
    def install(version):
        site.metadata("acme-thing", {}, version=version)

    return install


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("dist:acme-thing", True),
        ("dist:Acme_Thing>=2", True),
        ("dist:acme-thing>=2,<3", True),
        ("dist:acme-thing >= 2.4.1", True),
        ("dist:acme-thing>2.4.1", False),
        ("dist:acme-thing<2.4", False),
        ("dist:acme-thing==2.4.*", True),
        ("dist:acme-thing==2.5.*", False),
        ("dist:acme-thing!=2.4.*", False),
        ("dist:acme-thing~=2.3", True),
        ("dist:acme-thing~=2.3.0", False),
        ("dist:acme-thing!=2.4.1", False),
        ("dist:nobody-has-this", False),
    ],
)
def test_an_installed_distribution_is_compared_by_version(install_version, requirement, is_met):
    install_version("2.4.1")
    assert unreadable_requirements([requirement]) == []
    assert (unmet_requirements([requirement], {}) == []) is is_met


def test_a_version_that_is_not_a_number_is_below_every_other(install_version):
    install_version("unknown")
    assert unmet_requirements(["dist:acme-thing"], {}) == []
    assert "got unknown" in unmet_requirements(["dist:acme-thing>=0.1"], {})[0]


@settings(max_examples=150)
@given(VERSIONS, st.sampled_from([">=", "<=", ">", "<", "==", "!=", "~="]), VERSIONS)
def test_versions_are_ordered_as_packaging_orders_them(installed_version, operator, wanted):
    from hermes_core.discovery.installation.requirements import _satisfies

    if operator == "~=" and Version(wanted).release[1:] == ():
        return  # packaging refuses ~= with a single number
    if operator in {"<", ">"} and Version(installed_version).is_prerelease:
        return  # packaging adds an exception here that is about choosing versions, not about comparing them
    expected = SpecifierSet(f"{operator}{wanted}").contains(installed_version, prereleases=True)
    assert _satisfies(installed_version, operator, wanted) is expected


def test_a_reason_says_what_to_type(install_version):
    install_version("1.0")
    (missing,) = unmet_requirements(["dist:nobody-has-this>=2"], {})
    assert missing == "the package nobody-has-this is not installed (pip install 'nobody-has-this>=2')"
    (old,) = unmet_requirements(["dist:acme-thing>=2"], {})
    assert old == "expected package acme-thing >=2, got 1.0 (pip install 'acme-thing>=2')"


def test_programs_and_variables_are_looked_up_in_the_given_environment(tmp_path):
    program = tmp_path / "acme-tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environ = {"PATH": str(tmp_path), "TOKEN": "t", "EMPTY": ""}
    assert unmet_requirements(["bin:acme-tool", "env:TOKEN"], environ) == []
    assert unmet_requirements(["bin:sh", "env:EMPTY"], environ) == [
        "the program 'sh' is not on PATH",
        "the environment variable EMPTY is not set",
    ]


@pytest.mark.parametrize("requirement", ["modal", "dist:", "dist:modal>", "dist:modal>=x y", "pkg:x", "bin:", "env: "])
def test_an_unreadable_requirement_is_recognised(requirement):
    assert unreadable_requirements([requirement]) == [requirement]
