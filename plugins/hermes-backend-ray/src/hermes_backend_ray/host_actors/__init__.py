"""The actor on each node that starts the programs of sandboxes there, and the links to it."""
