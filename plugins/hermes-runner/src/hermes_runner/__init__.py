"""Runs: task sources, scheduling, resume, sinks, summary and report."""
