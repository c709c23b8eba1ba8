"""A small transformer that learns to use a tool, trained end to end through Atropos with `hermes_core`."""
