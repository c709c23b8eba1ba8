"""The tool server: external tools with their secrets, on a port or in the process that needs them."""
