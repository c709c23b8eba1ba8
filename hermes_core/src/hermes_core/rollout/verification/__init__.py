"""Verification of a rollout: its verifiers, their sandboxes and artifacts, and whom to blame if there is no score."""
