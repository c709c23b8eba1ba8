"""The workers that run rollouts on a cluster's nodes, and the run's links to them."""
