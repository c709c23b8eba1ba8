"""Benchmarks of hermes-core's cost; run each module with a command line as `python -m benchmarks.NAME`."""
