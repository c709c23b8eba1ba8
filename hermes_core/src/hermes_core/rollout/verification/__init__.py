"""Judging a rollout: its verifiers, their sandboxes, what these get, and who is to blame without a score."""
