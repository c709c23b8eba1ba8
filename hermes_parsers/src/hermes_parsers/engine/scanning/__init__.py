"""Scanning a model's text for calls, reasoning and content, whole or in pieces."""
