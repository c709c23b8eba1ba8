"""Formats whose arguments stand in tags, as in XML."""
