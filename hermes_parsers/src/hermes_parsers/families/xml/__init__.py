"""Formats with arguments in tags, as in XML."""
