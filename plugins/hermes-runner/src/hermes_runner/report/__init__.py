"""One self-contained `report.html` of a run, and how to build it again."""
