"""Delivery to a trainer or a file, serving, and reports."""
