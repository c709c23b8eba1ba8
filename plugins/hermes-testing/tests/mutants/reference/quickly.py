"""Imported before the suites: few examples without shrinking, which would take most of a mutant's time."""

from hypothesis import Phase, settings

settings.register_profile("mutants", max_examples=10, phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
