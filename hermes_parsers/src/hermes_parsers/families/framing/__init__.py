"""Framing, which is not content: brackets, code fences and the marks of an answer around calls and answers."""
