"""Tool calling: arguments, the budget of results, toolsets and which tools a rollout is offered."""
