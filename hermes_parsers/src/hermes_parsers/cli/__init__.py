"""The subcommand `hermes-core parsers`; imported when it runs."""
