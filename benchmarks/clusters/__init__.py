"""What many machines cost and bring: Slurm, Nomad and Ray."""
