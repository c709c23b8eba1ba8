"""Verifiers that compare the final answer or a file with what it should say."""
