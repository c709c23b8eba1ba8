"""Images of containers: pulled or built, and a Python for those that have none."""
