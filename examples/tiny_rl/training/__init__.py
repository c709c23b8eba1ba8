"""Teaching the transformer: supervised learning of the format, then GRPO."""
