"""The sinks of this package: the report, a timeline of events, and Weights & Biases."""
