"""Tool-call parsers: their speed, their behaviour, and the parsers of vLLM and SGLang."""
