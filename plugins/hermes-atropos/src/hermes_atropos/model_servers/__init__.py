"""The model servers of an environment, and the interface for its own code."""
