from reference.plugin import tool


def hermes_tools():
    return [tool("count", "Count")]
