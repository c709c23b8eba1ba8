"""The suites; import them from `hermes_testing`."""
