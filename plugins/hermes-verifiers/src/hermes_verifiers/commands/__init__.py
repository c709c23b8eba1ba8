"""Verifiers that run commands or a script in the sandbox, and the private directory that they use."""
