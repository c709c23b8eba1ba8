"""Read and write the inside of a call, for each kind of content of a template."""
