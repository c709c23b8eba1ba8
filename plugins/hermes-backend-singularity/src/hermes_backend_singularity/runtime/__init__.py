"""The program apptainer or singularity: find it, run it with a timeout, and convert its errors."""
