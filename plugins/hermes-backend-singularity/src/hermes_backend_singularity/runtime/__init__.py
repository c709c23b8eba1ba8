"""The program Apptainer or Singularity: find it, run it with a timeout, and convert its errors."""
