from __future__ import annotations

import sys
from pathlib import Path

# The example is run from its folder and installed nowhere.
sys.path.insert(0, str(Path(__file__).parents[2]))
