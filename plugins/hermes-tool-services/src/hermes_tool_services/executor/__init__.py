"""The tool executor: runs the calls of many trajectories, each in its own sandbox."""
