"""Components that pass their suites; the mutants beside this package each change one behaviour of them."""
