"""A terminal emulator. It converts a program's output to the text that a person at the terminal would see."""
