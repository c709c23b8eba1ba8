"""A pool of slots in hosts: the hosts are started, watched and ended, and each slot is given to who waits for it."""
