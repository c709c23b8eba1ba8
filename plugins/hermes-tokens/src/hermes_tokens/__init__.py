"""Token ids: the append rule, the trajectory of a rollout, and the report on how exact it is."""
