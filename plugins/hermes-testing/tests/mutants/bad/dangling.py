from reference.plugin import tool

from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_tools():
    return [tool("count", "Count"), tool("lost", "NoSuchClass")]
