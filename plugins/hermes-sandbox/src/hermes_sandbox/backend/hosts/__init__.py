"""The hosts of sandboxes: one for each, or one for many, each of which has its own user there."""
