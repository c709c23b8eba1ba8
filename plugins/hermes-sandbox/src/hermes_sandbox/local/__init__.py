"""Backend `local`: processes of this machine, plain or inside bubblewrap."""
