"""The plugin module: declarations only."""
