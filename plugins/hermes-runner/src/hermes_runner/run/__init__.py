"""One run: what is played, where, in which order, and what is recorded."""
