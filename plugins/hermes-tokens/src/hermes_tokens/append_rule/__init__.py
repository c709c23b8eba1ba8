"""The append rule: a prompt is the ids so far plus what the template writes next."""
