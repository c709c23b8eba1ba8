"""Runs the commands of a session: the bash around them, their pipes and their order."""
