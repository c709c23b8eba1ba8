"""The suite every terminal backend passes, a part a module."""
