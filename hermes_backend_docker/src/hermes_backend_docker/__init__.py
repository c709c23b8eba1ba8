"""Docker containers as sandboxes."""
