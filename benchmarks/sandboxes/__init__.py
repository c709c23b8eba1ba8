"""The cost of sandboxes with every backend, idle and busy, and long runs with injected failures."""
