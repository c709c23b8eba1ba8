"""How an agent comes to run: what receives and imports its modules, and the process that forks further ones."""
