from reference.plugin import PARAMETERS, tool

from hermes_core.hookspecs import hookimpl

_SCHEMA = {**PARAMETERS, "x-check": len}


@hookimpl
def hermes_tools():
    return [tool("count", "Count", parameters=_SCHEMA)]
