"""One declared component: its state, the check against its contract, how it is built, and the origin of its code."""
