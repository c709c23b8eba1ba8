"""Slot pools over many machines, the tool executor and the tool server, for hermes-core."""
