"""One run: which rollouts run, where and in which order, and what is recorded."""
