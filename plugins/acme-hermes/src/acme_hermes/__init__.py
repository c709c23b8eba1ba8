"""A stranger's plugin for hermes-core: one verifier, one tool, one parser, one backend."""
