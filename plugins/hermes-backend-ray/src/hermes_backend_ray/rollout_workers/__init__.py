"""The workers that play rollouts on the nodes, and the run's end of each."""
