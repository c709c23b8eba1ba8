"""Sandboxes on a Nomad cluster for hermes-core."""
