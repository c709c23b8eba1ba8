"""Machines reached by SSH as sandboxes."""
