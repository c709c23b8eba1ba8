"""Training data at token level: cost, exactness, and peers on the same conversations."""
