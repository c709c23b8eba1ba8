import random

from reference.plugin import tool

from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_tools():
    return [tool("count", "Count", description=f"Count, variant {random.random()}")]
