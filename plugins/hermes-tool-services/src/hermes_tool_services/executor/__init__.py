"""The tool executor: calls of many trajectories, each in a sandbox of its own."""
