"""Serve models and other services over HTTP."""
