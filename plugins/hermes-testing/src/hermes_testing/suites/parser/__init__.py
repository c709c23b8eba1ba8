"""The suite every tool-call parser passes, one part per module, and its sample texts."""
