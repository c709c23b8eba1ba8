"""Formats whose calls are JSON objects that hold the name and the arguments, in a list or between marks."""
