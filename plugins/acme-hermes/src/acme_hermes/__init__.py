"""A stranger's plugin for hermes-core: one verifier, two tools, one parser, one backend."""
