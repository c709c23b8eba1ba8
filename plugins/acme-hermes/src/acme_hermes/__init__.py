"""A stranger's plugin for hermes-core: two tools, a verifier, a parser and a backend."""
