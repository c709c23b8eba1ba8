"""Who owns a sandbox, on disk before it exists."""
