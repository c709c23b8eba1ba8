"""Contracts: what a component must be, the types it exchanges, and the one tree of errors.

Import the module you need (`hermes_core.contracts.parsing`, …); this package itself imports nothing.
"""
