"""The suite every terminal backend passes, one part per module."""
