"""Commands of a session: the bash around them, their pipes, their order."""
