"""The transformer, its tokenizer, and the server that samples from it."""
