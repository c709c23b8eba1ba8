"""Training data at token level: what it costs, how exact it is, and how peers fare with the same conversations."""
