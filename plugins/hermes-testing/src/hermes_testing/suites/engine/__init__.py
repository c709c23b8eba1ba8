"""The suite every rollout engine passes, a part a module."""
