"""Formats whose calls are written as Python, such as `f(a=1)`."""
