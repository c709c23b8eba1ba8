"""What a backend is built from."""
