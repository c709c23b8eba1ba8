"""The way to a trainer, or into a file: delivery, serving, reports."""
