"""Code shared by tests of this package is in `support/`; tests import its modules by their bare names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
