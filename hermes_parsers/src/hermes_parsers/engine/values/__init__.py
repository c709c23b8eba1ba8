"""Read JSON and Python literals in model output, including damaged ones."""
