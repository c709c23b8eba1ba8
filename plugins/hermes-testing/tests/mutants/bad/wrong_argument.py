from reference.plugin import hermes_tools  # noqa: F401 - declared by this module too

from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_rollout_finished(event, outcome):
    pass
