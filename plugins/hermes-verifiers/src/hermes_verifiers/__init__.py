"""Reward verifiers for hermes-core: exit code, files, pytest, matching, JSON schema, composition."""
