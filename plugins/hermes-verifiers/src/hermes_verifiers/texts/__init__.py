"""Verifiers that compare the final answer or a file with an expected text."""
