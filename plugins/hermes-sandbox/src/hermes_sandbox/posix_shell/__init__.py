"""Sandboxes without Python: the same operations, over a POSIX shell."""
