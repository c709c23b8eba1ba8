"""The places that sandboxes run in: one for each, or one for many, each with a user of its own there."""
