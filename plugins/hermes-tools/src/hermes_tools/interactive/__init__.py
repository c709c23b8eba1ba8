"""The tools of the interactive terminal."""
