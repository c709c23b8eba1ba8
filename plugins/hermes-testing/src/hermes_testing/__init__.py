"""Conformance suites for hermes-core plugins."""
