"""Cost and scaling of many machines: Slurm, Nomad and Ray."""
