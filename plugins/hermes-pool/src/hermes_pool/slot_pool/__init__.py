"""A pool of slots in hosts: starts, checks and ends the hosts, and gives each slot to a waiter."""
