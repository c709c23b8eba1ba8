"""Groups: from a dataset's item to the scored sequences of its rollouts."""
