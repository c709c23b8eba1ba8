"""What a rollout costs on a mock model: the framework beside a plain loop."""
