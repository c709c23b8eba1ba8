"""Built-in tools, toolsets and distributions, the check of arguments, and the result budget.

Import the module you need; `catalog` declares the tools without importing them, this package imports nothing.
"""
