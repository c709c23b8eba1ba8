"""How a plugin's code is called during a rollout, and the context that it is handed."""
