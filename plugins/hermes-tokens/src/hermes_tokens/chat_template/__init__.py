"""Chat templates: rendering, and the check that the append rule holds for a template."""
