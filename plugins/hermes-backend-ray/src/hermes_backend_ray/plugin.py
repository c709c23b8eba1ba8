"""What this plugin declares. Nothing below is imported before a run uses it."""
