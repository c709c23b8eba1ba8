"""The host actor on each node, which starts the programs of sandboxes there, and the links to it."""
