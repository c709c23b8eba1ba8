"""What hermes-core costs, measured; each module with a command line is run as `python -m benchmarks.NAME`."""
