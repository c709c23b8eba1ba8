"""The regular expressions and literals of a template, matched without backtracking."""
