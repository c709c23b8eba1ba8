"""A rollout's terminal in its sandbox: the shell, the commands typed at its prompt, and their output."""
