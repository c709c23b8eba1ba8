"""What an environment's author writes: rewards, contexts that are called without await, loops of their own."""
