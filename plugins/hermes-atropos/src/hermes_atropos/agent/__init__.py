"""`AgentEnv` and what it is made of."""
