"""Import every module of an installed distribution and load its entry points; run by check_wheels.py.

Arguments: the distribution, its import package, and the names of what its extras bring. A module that needs an extra
may fail to import for lack of exactly that.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial


def main(arguments: Sequence[str]) -> int:
    """Report every failure, then how much was seen."""
    distribution, package, *extras = arguments
    steps = [*_modules(package), *_entry_points(distribution)]
    failures = [name for name, load in steps if not _loads(name, load, extras)]
    print(f"{distribution}: {len(steps) - len(failures)} of {len(steps)} modules and entry points load")
    return 1 if failures else 0


def _modules(package: str) -> Iterator[tuple[str, Callable[[], object]]]:
    yield package, partial(importlib.import_module, package)
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _name: None):
        if not module.name.endswith("__main__"):
            yield module.name, partial(importlib.import_module, module.name)


def _entry_points(distribution: str) -> Iterator[tuple[str, Callable[[], object]]]:
    for entry_point in importlib.metadata.distribution(distribution).entry_points:
        yield f"entry point {entry_point.group}:{entry_point.name}", entry_point.load


def _loads(name: str, load: Callable[[], object], extras: Sequence[str]) -> bool:
    try:
        load()
    except Exception as error:  # noqa: BLE001 - whatever a module does at import is what this reports
        missing = _missing(error)
        if missing in extras:
            print(f"{name}: needs the extra that brings {missing}")
            return True
        traceback.print_exc()
    else:
        return True
    print(f"{name}: does not load with what the distribution declares")
    return False


def _missing(error: BaseException | None) -> str | None:
    """Return what is not installed, if that is why: a module may say so in its own words, with the cause behind it."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            return (error.name or "").partition(".")[0].replace("_", "-").lower()
        error = error.__cause__
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
