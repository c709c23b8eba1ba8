"""One container: its config, capabilities, owner labels, users, and the sandbox host."""
