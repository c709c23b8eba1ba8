"""Removing what the user of a slot leaves outside of the slot's directory."""
