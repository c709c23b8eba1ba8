"""The caller's side of the agent's wire protocol."""
