"""The tools for the interactive terminal."""
