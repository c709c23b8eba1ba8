"""The base classes of backends, and the sandboxes that they return."""
