import reference.tools  # noqa: F401 - what this mutant does wrong
from reference.plugin import hermes_tools  # noqa: F401 - declared by this module too
