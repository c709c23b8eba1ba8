"""A run's samples against a log that the other side wrote."""
