"""The proxy through which a sandbox reaches its allowed hosts."""
