"""Verifiers that run a command or a script of their own in the sandbox, and the private directory in which they do."""
