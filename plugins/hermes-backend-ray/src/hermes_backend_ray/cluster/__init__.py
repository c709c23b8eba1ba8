"""A Ray cluster: the connection of this process, its nodes, and Ray's notices of lost nodes."""
