"""The wire formats, sorted by their notation; a module is imported when its first parser is asked for."""
