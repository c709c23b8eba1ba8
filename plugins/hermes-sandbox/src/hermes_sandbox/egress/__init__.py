"""The proxy through which a sandbox reaches the hosts it may reach."""
