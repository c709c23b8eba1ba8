"""Images of containers: pull or build them, and bring a Python to those without one."""
