"""Removes files and IPC objects that the user of a slot left outside of the slot's directory."""
