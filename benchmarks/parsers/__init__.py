"""Tool-call parsers: their speed, their behaviour, and their peers in vLLM and SGLang."""
