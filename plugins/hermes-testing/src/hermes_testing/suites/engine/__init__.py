"""The suite every rollout engine passes, one part per module."""
