from reference.plugin import hermes_tools as tools

from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_tool():
    return tools()
