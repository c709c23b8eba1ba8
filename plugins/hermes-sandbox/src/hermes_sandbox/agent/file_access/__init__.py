"""Access to files and trees: reading, writing, packing and unpacking."""
