"""Images: what their names mean, and where those are kept that were built."""
