"""The tools that read, write, patch and search files."""
