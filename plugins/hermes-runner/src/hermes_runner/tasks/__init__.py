"""Tasks: reading them from a file or a folder, and what is wrong with those that cannot be used."""
