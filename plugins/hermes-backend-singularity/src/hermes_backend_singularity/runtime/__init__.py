"""The program Apptainer or Singularity: found, run for a time at most, and its complaints understood."""
