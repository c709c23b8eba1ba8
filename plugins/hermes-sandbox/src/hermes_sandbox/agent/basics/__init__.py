"""What the agent uses of the standard library in smaller forms, because it must start fast."""
