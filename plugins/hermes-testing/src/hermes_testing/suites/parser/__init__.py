"""The suite every tool-call parser passes, a part a module, and the texts that it feeds."""
