"""Instances: start and end them, prepare their first process, and record their owner."""
