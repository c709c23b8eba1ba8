"""Reading JSON and literals of Python in the text of a model, damaged ones as well."""
