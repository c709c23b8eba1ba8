"""Looking components up, loading them, building them from options."""

from __future__ import annotations

import sys

import pytest
from throwaway_plugins import backend, verifier

from hermes_core.contracts.errors import (
    AmbiguousComponentError,
    BackendError,
    BrokenComponentError,
    ConfigError,
    UnavailableComponentError,
    UnknownComponentError,
)
from hermes_core.specs import Ref

OPTIONS = """
import pydantic
class Options(pydantic.BaseModel):
    limit: int
    label: str = "x"
"""


@pytest.fixture
def two(site):
    """Two distributions that declare the backend docker."""
    return site.install("acme-docker", backend()), site.install("other-docker", backend())


def test_names_and_specs_are_sorted_by_name(site, load):
    site.install("acme-b", backend("zeta"))
    site.install("acme-a", backend("alpha"))
    registry = load("acme-a", "acme-b")
    assert registry.names("backend") == ("alpha", "zeta")
    assert [spec.name for spec in registry.specs("backend")] == ["alpha", "zeta"]
    assert registry.names("tool") == ()


def test_an_unknown_kind_lists_the_kinds(load):
    with pytest.raises(UnknownComponentError, match="known kinds: tool, backend, parser"):
        load().names("backends")


class TestConflicts:
    """A complaint about other plugin frameworks: collisions were decided silently, by the order of installation."""

    def test_a_bare_name_of_two_plugins_is_an_error_with_the_lines_that_settle_it(self, two, load):
        registry = load(*two)
        for use in (registry.spec, registry.load, registry.create, registry.component):
            with pytest.raises(AmbiguousComponentError) as caught:
                use("backend", "docker")
            message = str(caught.value)
            assert "acme-docker:docker, other-docker:docker" in message
            assert 'prefer: {"backend:docker": "acme-docker"}' in message
            assert 'prefer: {"backend:docker": "other-docker"}' in message
            assert "acme-docker:docker in place of docker" in message
        with pytest.raises(AmbiguousComponentError):
            registry.specs("backend")

    def test_an_ambiguous_name_is_still_listed(self, two, load):
        registry = load(*two)
        assert registry.names("backend") == ("docker",)
        (conflict,) = registry.conflicts
        assert (conflict.kind, conflict.name, conflict.plugins) == ("backend", "docker", two)

    @pytest.mark.parametrize("value", ["other-docker", "Other.Docker", "other-docker:docker"])
    def test_prefer_settles_it(self, two, load, value):
        registry = load(*two, prefer={"backend:docker": value})
        assert registry.component("backend", "docker").plugin.id == "other-docker:docker"
        assert len(registry.specs("backend")) == 1
        assert registry.conflicts == ()

    def test_prefer_takes_distribution_and_component_too(self, site, load):
        site.install("acme-docker", backend(), entry="plugin")
        site.install("other-docker", backend(), entry="plugin")
        registry = load("acme-docker", "other-docker", prefer={"backend:docker": "acme-docker:docker"})
        assert registry.component("backend", "docker").plugin.id == "acme-docker:plugin"

    @pytest.mark.parametrize("name", ["other-docker:docker", "other-docker:docker:docker", "Other_Docker:docker"])
    def test_a_qualified_name_says_which(self, two, load, name):
        component = load(*two).component("backend", name)
        assert (component.plugin.id, component.spec.name) == ("other-docker:docker", "docker")

    def test_the_packages_of_this_project_have_no_privilege(self, site, load):
        site.install("acme-local", backend("local"))
        registry = load("acme-local", "hermes-sandbox")
        with pytest.raises(AmbiguousComponentError, match="acme-local:local, hermes-sandbox:sandbox"):
            registry.spec("backend", "local")
        settled = load("acme-local", "hermes-sandbox", prefer={"backend:local": "acme-local"})
        assert settled.component("backend", "local").plugin.id == "acme-local:local"

    def test_two_plugins_of_one_distribution_are_told_apart_by_their_ids(self, site, load):
        one, other = site.write("one", PLUGIN), site.write("other", PLUGIN)
        site.metadata("acme-all", {"one": one, "other": other})
        with pytest.raises(AmbiguousComponentError, match='"acme-all:one"'):
            load("acme-all", prefer={"backend:docker": "acme-all"}).spec("backend", "docker")
        registry = load("acme-all", prefer={"backend:docker": "acme-all:other"})
        assert registry.component("backend", "docker").plugin.id == "acme-all:other"

    def test_a_preferred_plugin_that_does_not_bring_it_is_an_error_and_no_fall_back(self, two, site, load):
        site.install("acme-broken", "raise RuntimeError('boom')")
        registry = load(*two, "acme-broken", prefer={"backend:docker": "acme-broken"})
        with pytest.raises(ConfigError, match=r"does not declare it .*acme-broken:broken is failed .RuntimeError"):
            registry.spec("backend", "docker")

    @pytest.mark.parametrize(
        ("prefer", "message"),
        [
            ({"backend:docker": "nobody"}, "'nobody' for backend:docker, which is not installed"),
            ({"docker": "acme-docker"}, "expected a key like 'backend:docker', got 'docker'"),
            ({"backends:docker": "acme-docker"}, "unknown kind of component 'backends'"),
        ],
    )
    def test_a_wrong_prefer_line_is_an_error(self, two, load, prefer, message):
        with pytest.raises((ConfigError, UnknownComponentError), match=message):
            load(*two, prefer=prefer)


PLUGIN = (
    f"from hermes_core import hookimpl\nfrom hermes_core.specs import *\n{__import__('textwrap').dedent(backend())}"
)


class TestUnknown:
    def test_near_names_are_offered(self, site, load):
        site.install("acme-x", backend("firecracker"))
        with pytest.raises(UnknownComponentError, match=r"did you mean 'firecracker'\?"):
            load("acme-x").spec("backend", "firecraker")

    @pytest.mark.parametrize(
        ("kind", "name", "package"),
        [
            ("backend", "docker", "hermes-backend-docker"),
            ("backend", "slurm", "hermes-backend-slurm"),
            ("backend", "modul", "hermes-backend-modal"),
            ("parser", "qwen3_coder", "hermes-parsers"),
            ("tool", "terminal", "hermes-tools"),
            ("verifier", "pytest", "hermes-verifiers"),
            ("verifier", "exit_code", "hermes-verifiers"),
        ],
    )
    def test_a_known_component_names_the_package_that_brings_it(self, load, kind, name, package):
        with pytest.raises(UnknownComponentError, match=f"pip install {package}|{package} has it"):
            load().spec(kind, name)

    def test_a_known_component_is_not_taken_for_a_misspelling_of_another(self, site, load):
        site.install("acme-local", backend("local"))
        with pytest.raises(
            UnknownComponentError, match=r"pip install hermes-backend-modal|hermes-backend-modal has it"
        ):
            load("acme-local").spec("backend", "modal")

    def test_a_plugin_that_failed_or_is_blocked_might_have_been_it(self, site, load):
        site.install("acme-broken", "raise RuntimeError('boom')")
        with pytest.raises(UnknownComponentError) as caught:
            load("acme-broken").spec("backend", "mine")
        assert "acme-broken:broken is failed (RuntimeError: boom)" in str(caught.value)
        assert "hermes-tools:tools is blocked (not in the allow-list" in str(caught.value)

    def test_an_installed_package_that_is_out_of_order_is_not_to_be_installed_again(self, site, load):
        site.install("hermes-backend-docker", "raise RuntimeError('boom')")
        with pytest.raises(UnknownComponentError, match="has it and is installed; see: hermes-core plugins show"):
            load("hermes-backend-docker").spec("backend", "docker")

    def test_a_qualified_name_of_the_wrong_plugin(self, two, load):
        with pytest.raises(UnknownComponentError, match="'nobody' declares no backend 'docker', but other plugins do"):
            load(*two).spec("backend", "nobody:docker")


class TestLoading:
    def test_a_target_is_imported_once_per_registry(self, site, load):
        site.install("acme-docker", backend())
        registry = load("acme-docker")
        assert registry.component("backend", "docker").state == "declared"
        assert registry.load("backend", "docker") is registry.load("backend", "docker")
        assert registry.component("backend", "docker").state == "ready"

    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("no_such_module:Backend", "does not exist .no module 'no_such_module'"),
            ("SELF:Nothing", "does not exist .*no attribute 'Nothing'"),
            ("needy_module:Backend", "the module 'sympy_is_missing', which it needs, is not installed"),
            ("exiting_module:Backend", r"it called sys.exit\(4\)"),
        ],
    )
    def test_a_target_that_cannot_be_imported_is_broken_and_the_rest_works(self, site, load, target, reason):
        """In other frameworks: one missing optional dependency lost all components of a plugin."""
        (site.folder / "needy_module.py").write_text("import sympy_is_missing")
        (site.folder / "exiting_module.py").write_text("import sys; sys.exit(4)")
        site.install("acme-docker", backend(target=target) + verifier())
        registry = load("acme-docker")
        with pytest.raises(BrokenComponentError, match=reason) as caught:
            registry.load("backend", "docker")
        assert caught.value.__cause__ is not None
        assert "acme-docker" in str(caught.value)
        assert registry.component("backend", "docker").state == "broken"
        assert registry.create("verifier", "exact") is not None

    @pytest.mark.parametrize(
        ("methods", "reason"),
        [
            ("async def open(self, spec): ...\nasync def aclose(self): ...", r"it has no method check\(spec\)"),
            ("async def check(self): ...", "check does not take 'spec'"),
            ("async def check(self, spec, more): ...", "check requires 'more', which no caller passes"),
            ("def check(self, spec): ...", "check must be 'async def'"),
            ("check = 3", "it has no method check"),
        ],
    )
    def test_a_target_that_breaks_its_contract_is_broken(self, site, load, methods, reason):
        lines = "\n".join(f"    {line}" for line in methods.splitlines())
        site.install(
            "acme-bad",
            "@hookimpl\ndef hermes_backends():\n"
            "    return [BackendSpec(name='bad', summary='', target='SELF:Bad')]\n"
            "class Good:\n    async def open(self, spec): ...\n    async def aclose(self): ...\n"
            f"class Bad(Good):\n{lines}\n",
        )
        with pytest.raises(BrokenComponentError, match=reason):
            load("acme-bad").load("backend", "bad")

    def test_the_product_of_a_factory_is_checked_when_it_is_made(self, site, load):
        site.install(
            "acme-made",
            """
            @hookimpl
            def hermes_verifiers():
                return [VerifierSpec(name=n, summary="", target=f"SELF:{n}") for n in ("good", "bad")]
            class Verifier:
                def score(self, result, context): ...
            def good():
                return Verifier()
            def bad():
                return object()
            """,
        )
        registry = load("acme-made")
        assert registry.create("verifier", "good").score(None, None) is None
        with pytest.raises(BrokenComponentError, match="has no method score"):
            registry.create("verifier", "bad")

    def test_a_missing_requirement_is_unavailable_with_the_reason_and_is_not_imported(self, site, load):
        site.install("acme-docker", backend(target="no_such:X", requires=("env:ACME_TOKEN", "bin:no-such-program-x")))
        registry = load("acme-docker")
        component = registry.component("backend", "docker")
        assert component.state == "unavailable"
        assert "environment variable ACME_TOKEN is not set" in component.reason
        with pytest.raises(UnavailableComponentError, match="program 'no-such-program-x' is not on PATH"):
            registry.create("backend", "docker")

    def test_a_requirement_that_appears_is_seen(self, site, load):
        site.install("acme-docker", backend(requires=("env:ACME_TOKEN",)))
        environ: dict[str, str] = {}
        registry = load("acme-docker", environ=environ)
        with pytest.raises(UnavailableComponentError):
            registry.load("backend", "docker")
        environ["ACME_TOKEN"] = "t"
        assert registry.load("backend", "docker").__name__ == "Backend"

    def test_looking_a_component_up_again_reads_no_metadata(self, site, load, monkeypatch):
        """A complaint about other plugin frameworks: the metadata were read on the hot path."""
        site.install("acme-docker", backend(requires=("dist:acme-docker",)))
        registry = load("acme-docker")
        registry.create("backend", "docker")
        monkeypatch.setattr(sys, "meta_path", [])
        monkeypatch.setattr("importlib.metadata.distributions", None)
        monkeypatch.setattr("hermes_core.discovery.installation.distributions.distributions", None)
        assert registry.component("backend", "docker").state == "ready"
        assert registry.create("backend", "docker") is not None
        assert registry.specs("backend")
        assert registry.parser_for("m") is None

    def test_a_toolset_has_nothing_to_load(self, load):
        with pytest.raises(ConfigError, match="is a declaration only"):
            load("hermes-tools").load("toolset", "terminal")


class TestOptions:
    @pytest.fixture
    def registry(self, site, load):
        body = "def __init__(self, options): self.options = options\n        Options = Options"
        site.install("acme-exact", OPTIONS + __import__("textwrap").dedent(verifier(body=body)))
        site.install("acme-plain", verifier("plain"))
        return load("acme-exact", "acme-plain")

    def test_options_are_validated_by_the_components_own_model(self, registry):
        assert registry.create("verifier", "exact", {"limit": "3"}).options.limit == 3

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "limit is missing"),
            (None, "limit is missing"),
            ({"limit": "many"}, "limit: .*integer.*, got 'many'"),
            ({"limit": 1, "lable": "x"}, "has no option 'lable'"),
            ({"limit": 1, "lable": "x"}, "did you mean 'label'"),
            ({"limit": 1, "what": 2}, "known options: limit, label"),
        ],
    )
    def test_wrong_options_say_which_what_was_found_and_what_is_known(self, registry, options, message):
        with pytest.raises(ConfigError, match=message):
            registry.create("verifier", "exact", options)

    def test_options_for_a_component_without_any_are_an_error(self, registry):
        assert registry.create("verifier", "plain", {}) is not None
        with pytest.raises(ConfigError, match="verifier:plain takes no options, got: limit"):
            registry.create("verifier", "plain", {"limit": 1})

    def test_a_component_that_is_made_of_others_is_given_the_means_to_build_them(self, site, load):
        """And those refuse their options with the same words as anywhere."""
        body = """takes_build = True
        def __init__(self, *, build):
            self.inner = build("verifier", "exact", {"limit": 5})
            self.build = build"""
        site.install(
            "acme-exact",
            OPTIONS
            + __import__("textwrap").dedent(
                verifier(body="def __init__(self, options): self.options = options\n        Options = Options")
            ),
        )
        site.install("acme-outer", verifier("outer", body))
        registry = load("acme-exact", "acme-outer")
        outer = registry.create("verifier", "outer")
        assert outer.inner.options.limit == 5
        with pytest.raises(ConfigError, match="limit is missing"):
            outer.build("verifier", "exact", {})

    @pytest.mark.parametrize(
        ("raised", "error"),
        [("RuntimeError('boom')", BrokenComponentError), ("BackendError('away')", BackendError)],
    )
    def test_a_constructor_that_raises_is_broken_unless_it_says_who_is_to_blame(self, site, load, raised, error):
        imports = "from hermes_core.contracts.errors import BackendError"
        body = f"def __init__(self):\n            {imports}\n            raise {raised}"
        site.install("acme-raises", verifier("raises", body))
        with pytest.raises(error, match=r"boom|away"):
            load("acme-raises").create("verifier", "raises")


class TestParserFor:
    def answers(self, site, name, answer):
        return site.install(name, f"@hookimpl\ndef hermes_parser_for(model_id):\n    {answer}")

    def test_one_answer_is_taken_and_silence_is_none(self, site, load):
        knows = self.answers(site, "acme-a", "return 'hermes' if 'hermes' in model_id else None")
        registry = load(knows)
        assert registry.parser_for("hermes-4") == "hermes"
        assert registry.parser_for("gpt") is None

    def test_agreement_is_no_conflict(self, site, load):
        names = [self.answers(site, f"acme-{n}", "return 'hermes'") for n in "ab"]
        assert load(*names).parser_for("m") == "hermes"

    def test_disagreement_names_both_plugins_and_the_line_that_settles_it(self, site, load):
        names = self.answers(site, "acme-a", "return 'hermes'"), self.answers(site, "acme-b", "return 'mistral'")
        with pytest.raises(AmbiguousComponentError) as caught:
            load(*names).parser_for("m")
        assert "acme-a:a says 'hermes', acme-b:b says 'mistral'" in str(caught.value)
        assert "tool_call_parser: hermes or tool_call_parser: mistral" in str(caught.value)

    @pytest.mark.parametrize("answer", ["raise ValueError('boom')", "return 3"])
    def test_a_plugin_that_cannot_answer_is_recorded_and_the_others_answer(self, site, load, answer):
        names = self.answers(site, "acme-a", answer), self.answers(site, "acme-b", "return 'hermes'")
        registry = load(*names)
        assert registry.parser_for("m") == "hermes"
        (problem,) = registry.event_problems
        assert (problem.plugin, problem.hook, problem.kind) == ("acme-a:a", "hermes_parser_for", "raised")


class TestProvenance:
    def test_only_the_plugins_that_were_used_and_the_core_are_recorded(self, site, load):
        """A complaint about other plugin frameworks: new installed code runs without anybody knowing which."""
        site.install("acme-docker", backend(), version="2.1")
        site.install("acme-exact", verifier())
        registry = load("acme-docker", "acme-exact")
        acme, core = registry.provenance([Ref(kind="backend", name="docker"), ("backend", "docker")])
        assert acme["plugin"] == "acme-docker:docker"
        assert acme["version"] == "2.1"
        assert acme["entry_point"] == site.module("acme_docker")
        assert acme["components"] == ["backend:docker"]
        assert acme["origin"] is None
        assert core["distribution"] == "hermes-agent-core"

    def test_the_record_is_hashed_as_it_lies_there(self, site, load):
        import hashlib

        record = "acme_docker-1.0.dist-info/RECORD,,\r\n"
        site.install("acme-docker", backend())
        path = site.folder / "acme_docker-1.0.dist-info" / "RECORD"
        path.write_bytes(record.encode())
        (entry, _) = load("acme-docker").provenance([("backend", "docker")])
        assert entry["record_sha256"] == hashlib.sha256(record.encode()).hexdigest()

    @pytest.mark.parametrize(
        ("direct", "origin"),
        [
            (
                {"url": "https://user:token@host/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
                {"url": "https://host/r", "editable": False, "vcs": "git", "commit_id": "abc"},
            ),
            ({"url": "file:///src", "dir_info": {"editable": True}}, {"url": "file:///src", "editable": True}),
        ],
    )
    def test_where_it_came_from_is_recorded_without_credentials(self, site, load, direct, origin):
        site.install("acme-docker", backend(), files={"direct_url.json": direct})
        (entry, _) = load("acme-docker").provenance([("backend", "docker")])
        assert entry["origin"] == origin
