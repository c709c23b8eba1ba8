"""The model servers of an environment, and what its own code asks of them."""
