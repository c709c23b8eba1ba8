"""The backend `pool`: other backends as its members, and who opens the next sandbox on which of them."""
