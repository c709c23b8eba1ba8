"""One container: what it is made with, what it may do, whose it is, and the sandbox's place in it."""
