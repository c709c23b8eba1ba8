"""Models and services behind a port."""
