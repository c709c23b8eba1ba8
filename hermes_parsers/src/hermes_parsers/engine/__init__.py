"""Code that every family shares: the scanning stream, JSON with spans, results and rendering."""
