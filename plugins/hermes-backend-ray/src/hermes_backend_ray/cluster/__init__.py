"""A Ray cluster: this process's connection to it, its nodes, and what Ray says of their end."""
