"""The workers that run rollouts on the nodes, and the run's links to them."""
