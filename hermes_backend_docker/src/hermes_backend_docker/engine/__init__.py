"""The Docker engine: its address, requests, and errors."""
