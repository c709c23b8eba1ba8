"""Images: resolve their names, and cache built ones."""
