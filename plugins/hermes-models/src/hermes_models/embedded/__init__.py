"""Models that need no server."""
