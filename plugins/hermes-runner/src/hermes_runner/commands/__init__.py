"""The commands `run`, `tasks` and `report`."""
