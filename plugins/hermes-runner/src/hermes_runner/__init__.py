"""The main job: tasks, admission, resume, ledger, sinks, summary."""
