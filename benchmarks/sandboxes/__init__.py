"""What sandboxes cost with every backend, idle and at work, and what a long run under fire leaves behind."""
