"""Support for authors' code: rewards, contexts that are called without await, and own agent loops."""
