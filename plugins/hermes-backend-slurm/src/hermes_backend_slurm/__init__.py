"""Sandboxes on the nodes of a Slurm allocation for hermes-core."""
