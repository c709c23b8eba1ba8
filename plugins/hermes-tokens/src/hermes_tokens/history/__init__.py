"""What was said so far, and what a caller has changed in it since."""
