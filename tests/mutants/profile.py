"""A pytest plugin: hypothesis looks for a counterexample and does not make it small."""

from hypothesis import Phase, settings

settings.register_profile("mutants", deadline=None, phases=[Phase.explicit, Phase.generate])
