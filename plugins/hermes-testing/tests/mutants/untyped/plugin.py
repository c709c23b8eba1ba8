from reference.plugin import hermes_tools  # noqa: F401 - declared by this module too
