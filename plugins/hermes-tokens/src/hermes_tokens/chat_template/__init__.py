"""Chat templates: rendering, and the proof that the append rule holds for one."""
