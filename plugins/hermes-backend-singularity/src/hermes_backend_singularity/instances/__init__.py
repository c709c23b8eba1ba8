"""Instances: their start and end, their first process, and their owner."""
