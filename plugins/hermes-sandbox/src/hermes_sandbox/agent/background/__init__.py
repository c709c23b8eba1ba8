"""Background processes: their input, their output, their end."""
