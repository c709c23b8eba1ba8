"""The wire formats, sorted by notation; a module is imported when its first parser is requested."""
