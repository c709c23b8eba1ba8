"""`python -m hermes_core.cli`, the same as `hermes-core`."""

import sys

from hermes_core.cli import main

sys.exit(main())
