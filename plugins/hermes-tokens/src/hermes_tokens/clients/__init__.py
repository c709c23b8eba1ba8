"""Clients of model servers that take and return token ids."""
