"""Apptainer and Singularity containers as sandboxes for hermes-core."""
