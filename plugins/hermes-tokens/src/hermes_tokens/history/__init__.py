"""The conversation so far, and edits that a caller made to it."""
