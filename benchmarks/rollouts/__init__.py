"""The cost of a rollout with a mock model: the framework compared with a plain loop."""
