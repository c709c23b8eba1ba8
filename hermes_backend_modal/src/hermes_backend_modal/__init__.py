"""Modal sandboxes for hermes-core."""
