"""Check a run's samples against a log from the server's side."""
