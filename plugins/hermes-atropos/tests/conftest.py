from __future__ import annotations

import sys
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
# The local plugin's targets are imported by module name, as a user's would be from a folder on the path.
sys.path.insert(0, str(SUPPORT))
