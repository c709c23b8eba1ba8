"""Cache JAX's compiled programs, so that the processes of a run, and the next run, need not compile them again."""

from __future__ import annotations

from pathlib import Path

import jax


def keep_compiled(folder: Path) -> None:
    """Use a folder for compiled programs; called once, by the main function of a process."""
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
