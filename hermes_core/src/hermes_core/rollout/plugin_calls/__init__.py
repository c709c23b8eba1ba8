"""Calls of plugins' code during a rollout, and the context that these get."""
