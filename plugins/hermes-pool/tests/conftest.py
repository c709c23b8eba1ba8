from __future__ import annotations

import sys
from pathlib import Path

# What several test modules share; importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "support"))
