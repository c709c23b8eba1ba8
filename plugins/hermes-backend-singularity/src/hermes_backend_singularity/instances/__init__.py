"""Instances: how one is started and ended, what runs in it first, and whose it is."""
