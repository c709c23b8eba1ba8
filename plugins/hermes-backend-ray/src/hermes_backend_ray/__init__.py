"""Sandboxes and whole rollouts on a Ray cluster for hermes-core."""
