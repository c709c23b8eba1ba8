"""The append rule: a prompt is the ids so far and what the template writes next."""
