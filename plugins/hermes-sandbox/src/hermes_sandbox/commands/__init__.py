"""The commands `sandboxes` and `doctor`."""
