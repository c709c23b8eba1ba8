"""The Docker engine: where it listens, what is asked of it, and what its complaints mean."""
