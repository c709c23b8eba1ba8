"""The verifier `pytest`: hidden tests, run in the sandbox in a separate process from the code under test."""
