"""A terminal emulator: what programs write to a terminal, as the text that a person in front of it would see."""
