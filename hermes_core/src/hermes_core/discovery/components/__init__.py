"""One declared component: its state, its check against the contract, how it is built, and where its code comes from."""
