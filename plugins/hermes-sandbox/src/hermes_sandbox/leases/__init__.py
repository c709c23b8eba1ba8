"""Leases: records of who owns a sandbox, on disk before it exists."""
