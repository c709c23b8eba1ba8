"""Interactive terminals."""
