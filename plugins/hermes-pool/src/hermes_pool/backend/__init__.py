"""The backend `pool`: its members, which are other backends, and the choice of a member for each sandbox."""
