"""Formats in which special tokens mark the parts of a turn or of a call, such as its name and its arguments."""
