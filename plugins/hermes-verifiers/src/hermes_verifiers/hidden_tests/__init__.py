"""The verifier `pytest`: hidden tests, and the program that runs them in the sandbox apart from the code under test."""
